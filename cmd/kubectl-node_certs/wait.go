// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/cluster/fleet"
	"github.com/node-cert-agent/node-cert-agent/cluster/publisher/merge"
	"github.com/node-cert-agent/node-cert-agent/cmd/process"
)

// waiting are the flags of wait.
type waiting struct {
	field, registry, ignore string
	sha256                  []string
	timeout                 time.Duration
	openShift               bool
}

func waitCommand(c *connection) *cobra.Command {
	var w waiting
	cmd := &cobra.Command{
		Use:   "wait",
		Short: "Wait until every node has certificates",
		Long: `wait asks every node whether it has the certificates on its disk, and ends when all have answered that they do.
It asks by an annotation of the ControllerConfig: a node answers by following that version and reporting.
What a node reported before does not count, because it may have been installed again since.

Run it before you have the servers of a CA renewed, and before you take the old CA out.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := w.question()
			if err != nil {
				return process.Misused(err)
			}
			config, err := c.config()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), w.timeout)
			defer cancel()
			return w.wait(ctx, config, q, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.field, "field", "", "the `FIELD` of the ControllerConfig, such as rootCAData")
	f.StringVar(&w.registry, "registry", "", "the `HOST[:PORT]`, if the field is a list of registries")
	f.StringSliceVar(&w.sha256, "sha256", nil, "the `FINGERPRINTS` of the certificates, as "+
		"openssl x509 -fingerprint -sha256 or the status of a NodeBundle prints them")
	f.StringVar(&w.ignore, "ignore-nodes", "", "do not wait for the Nodes that the `SELECTOR` selects")
	f.DurationVar(&w.timeout, "timeout", 10*time.Minute, "how long to wait")
	f.BoolVar(&w.openShift, "openshift", false, "the ControllerConfig is that of OpenShift")
	return cmd
}

// question reads the flags.
func (w waiting) question() (q fleet.Question, err error) {
	q.Key = plan.Key{Field: plan.Field(w.field), Name: w.registry}
	_, err = merge.SpecOf(q.Key)
	switch {
	case q.Key.Field.List() != (w.registry != ""):
		return q, fmt.Errorf("--registry belongs to the fields that are lists of registries, which need it")
	case err != nil:
		return q, fmt.Errorf("--field, --registry: %v", err)
	case len(w.sha256) == 0:
		return q, fmt.Errorf("--sha256 is missing: which certificates shall every node have?")
	case w.timeout <= 0:
		return q, fmt.Errorf("--timeout %v is no time to wait", w.timeout)
	}
	for _, text := range w.sha256 {
		raw, err := hex.DecodeString(strings.ReplaceAll(strings.TrimPrefix(text, "sha256:"), ":", ""))
		if err != nil || len(raw) != len(pki.Fingerprint{}) {
			return q, fmt.Errorf("--sha256 %q is no SHA-256 in hexadecimal", text)
		}
		q.Certificates = append(q.Certificates, pki.Fingerprint(raw))
	}
	q.Ignore, err = labels.Parse(w.ignore)
	if err != nil {
		return q, fmt.Errorf("--ignore-nodes: %v", err)
	}
	return q, nil
}

// wait asks, and prints each answer that differs from the last.
func (w waiting) wait(ctx context.Context, config *rest.Config, q fleet.Question, out io.Writer) error {
	f, err := watch(ctx, config)
	if err != nil {
		return err
	}
	if q.Asked, err = w.ask(ctx, config); err != nil {
		return err
	}
	last := ""
	for {
		a := f.Judge(q)
		if text := strings.ReplaceAll(a.String(), "what remains", "them"); text != last {
			last = text
			fmt.Fprintln(out, text)
		}
		if a.Settled() {
			return nil
		}
		select {
		case <-f.Changed():
		case <-ctx.Done():
			printMissing(out, a)
			if errors.Is(ctx.Err(), context.Canceled) {
				return fmt.Errorf("interrupted: %d of %d nodes have them", a.Have, a.All)
			}
			return fmt.Errorf("after %v, %d of %d nodes have them: see to those above, or wait again", w.timeout, a.Have, a.All)
		}
	}
}

// annotation of the ControllerConfig makes the version by which the nodes are asked. The publisher has others.
const annotation = "asked.node-cert-agent.io/kubectl"

// ask makes a new version of the ControllerConfig, and gives that.
func (w waiting) ask(ctx context.Context, config *rest.Config) (plan.ControllerConfig, error) {
	resource := schema.GroupVersionResource{Group: "node-cert-agent.io", Version: "v1alpha1",
		Resource: "controllerconfigs"}
	if w.openShift {
		resource.Group, resource.Version = "machineconfiguration.openshift.io", "v1"
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return plan.ControllerConfig{}, err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{annotation: time.Now().UTC().Format(time.RFC3339Nano)}}})
	if err != nil {
		return plan.ControllerConfig{}, err
	}
	o, err := client.Resource(resource).Patch(ctx, "machine-config-controller", types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		return plan.ControllerConfig{}, fmt.Errorf("asking the nodes, which needs the right to patch the "+
			"ControllerConfig: %v", err)
	}
	return plan.ControllerConfig{UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion()}, nil
}

// printMissing shows who lacks what, and since when nothing was heard of it.
func printMissing(out io.Writer, a fleet.Answer) {
	lines := [][]string{{"NODE", "LAST HEARD", "REASON"}}
	for _, m := range a.Missing {
		lines = append(lines, []string{m.Node, since(&m.Since, time.Now()), m.Reason})
	}
	columns(out, lines)
}
