// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
)

// pageSize is how many objects are held at a time: with 500 certificates in each file a page has some 15 MB.
const pageSize = 500

// The collections that are read.
const (
	states  = "/apis/node-cert-agent.io/v1alpha1/nodecertificatestates"
	bundles = "/apis/node-cert-agent.io/v1alpha1/nodebundles"
	nodes   = "/api/v1/nodes"
)

// cluster reads what a cluster knows of its nodes.
type cluster struct{ client *rest.RESTClient }

func newCluster(config *rest.Config) (cluster, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return cluster{}, fmt.Errorf("making a client: %v", err)
	}
	return cluster{client}, nil
}

// each gives every object of a collection to do, and holds one page of them.
func each[T any](ctx context.Context, c cluster, collection string, do func(T)) error {
	next := ""
	for {
		get := c.client.Get().AbsPath(collection).Param("limit", strconv.Itoa(pageSize)).Param("continue", next)
		if collection == nodes { // of a Node its name and age are all that counts
			get = get.SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
		}
		raw, err := get.Do(ctx).Raw()
		if err != nil {
			return fmt.Errorf("listing %s: %w", collection, err)
		}
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []T             `json:"items"`
		}
		if err := json.Unmarshal(raw, &page, jsonv1.DefaultOptionsV1()); err != nil {
			return fmt.Errorf("reading the list of %s: %v", collection, err)
		}
		for _, o := range page.Items {
			do(o)
		}
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}

// summary is a NodeCertificateState without its lists, which are most of what there is to read.
type summary struct {
	metav1.ObjectMeta `json:"metadata"`
	Status            struct {
		v1alpha1.NodeCertificateStateStatus
		Files   unread `json:"files"`
		Held    unread `json:"held"`
		Pending unread `json:"pending"`
	} `json:"status"`
}

func (s summary) state() v1alpha1.NodeCertificateState {
	return v1alpha1.NodeCertificateState{ObjectMeta: s.ObjectMeta, Status: s.Status.NodeCertificateStateStatus}
}

// unread is a value that nobody asks for.
type unread struct{}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (unread) UnmarshalJSONFrom(d *jsontext.Decoder) error { return d.SkipValue() }

// one reads an object.
func one[T any](ctx context.Context, c cluster, collection, name string) (o T, err error) {
	raw, err := c.client.Get().AbsPath(collection, name).Do(ctx).Raw()
	if err != nil {
		return o, fmt.Errorf("reading %s/%s: %w", collection, name, err)
	}
	if err := json.Unmarshal(raw, &o, jsonv1.DefaultOptionsV1()); err != nil {
		return o, fmt.Errorf("reading %s/%s: %v", collection, name, err)
	}
	return o, nil
}

// reported is when the agent wrote last. It is zero if the agent never did.
func reported(s v1alpha1.NodeCertificateState) time.Time {
	if s.Status.State == "" {
		return time.Time{}
	}
	return v1alpha1.Reported(s.ManagedFields)
}

// conditionOf is a condition of a node; Unknown if the node does not say.
func conditionOf(s v1alpha1.NodeCertificateState, kind string) v1alpha1.Condition {
	for _, c := range s.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return v1alpha1.Condition{Type: kind, Status: metav1.ConditionUnknown}
}
