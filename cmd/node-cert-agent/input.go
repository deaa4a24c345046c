// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// maxInput is what an API server would accept, and some.
const maxInput = 4 << 20

// inputOptions say where contents are read from by hand.
type inputOptions struct{ file, field, entry string }

func (o *inputOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.file, "file", "f", "",
		"a ControllerConfig in YAML or JSON, or with --field bare content; - is standard input (`FILE`)")
	cmd.Flags().StringVar(&o.field, "field", "",
		"the `FIELD` that bare content is for, such as kubeAPIServerServingCAData")
	cmd.Flags().StringVar(&o.entry, "entry", "", "the registry's `HOST[:PORT]`, for fields that have a file for each")
}

// read gives what the input asks for, validated like an object of the cluster. Refusals are part of it.
func (o inputOptions) read(specs []plan.FileSpec, stdin io.Reader) (plan.Desired, error) {
	data, err := o.bytes(stdin)
	if err != nil {
		return plan.Desired{}, err
	}
	if o.field != "" {
		return o.bare(specs, data)
	}
	if o.entry != "" {
		return plan.Desired{}, process.Misused(errors.New("--entry goes with --field"))
	}
	object, err := decodeManifest(data)
	if err != nil {
		return plan.Desired{}, fmt.Errorf("%s: %v", o.file, err)
	}
	var p watch.Projector
	return p.Project(object, specs, time.Now()), nil
}

func (o inputOptions) bytes(stdin io.Reader) ([]byte, error) {
	from := stdin
	if o.file != "-" {
		f, err := os.Open(o.file)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, maxInput+1))
	if err == nil && len(data) > maxInput {
		err = fmt.Errorf("more than %d bytes", maxInput)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", o.file, err)
	}
	return data, nil
}

// bare lays content out on one field.
func (o inputOptions) bare(specs []plan.FileSpec, data []byte) (plan.Desired, error) {
	id := plan.Field(o.field)
	spec, ok := plan.Policy{Files: specs}.File(id)
	if !ok {
		return plan.Desired{}, process.Misused(fmt.Errorf("this host has no field %q", o.field))
	}
	if id.List() != (o.entry != "") {
		err := fmt.Errorf("field %s: --entry is for the registry fields, and they want it", id)
		return plan.Desired{}, process.Misused(err)
	}
	var field watch.Field
	field.Data = data
	if id.List() {
		field = watch.Field{Entries: []watch.ListEntry{{File: o.entry, Data: data}}}
	}
	var p watch.Projector
	d := p.Project(watch.Object{Fields: map[plan.Field]watch.Field{id: field}}, []plan.FileSpec{spec}, time.Now())
	if id.List() {
		d.Listed = nil // one registry, and nothing is said of the others
	}
	return d, nil
}

// decodeManifest reads a ControllerConfig as a person has it in a file.
func decodeManifest(data []byte) (watch.Object, error) {
	if text := bytes.TrimSpace(data); len(text) == 0 || text[0] != '{' {
		var document any
		if err := yaml.Unmarshal(data, &document); err != nil {
			return watch.Object{}, errors.New("neither YAML nor JSON")
		}
		converted, err := json.Marshal(document)
		if err != nil {
			return watch.Object{}, errors.New("not a Kubernetes manifest: a name in it is not a string")
		}
		data = converted
	}
	return watch.DecodeObject(bytes.NewReader(data))
}
