// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/hex"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
)

// kept is what the informers keep of an object.
type kept struct {
	metav1.ObjectMeta
	node Node
}

func keep(o metav1.Object, n Node) *kept {
	return &kept{node: n, ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), UID: o.GetUID(),
		ResourceVersion: o.GetResourceVersion()}}
}

// keepNode is the transform of the informer of Nodes; see cache.TransformFunc.
func keepNode(o any) (any, error) {
	n, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return o, nil // it was kept before, or is gone
	}
	have := make(labels.Set, len(n.Labels))
	maps.Copy(have, n.Labels)
	return keep(n, Node{Name: n.Name, Labels: have, Joined: n.CreationTimestamp.Time}), nil
}

// keepState is the transform of the informer of NodeCertificateStates. One that cannot be read is that of a node that
// never reported: it must not stop the watch of all.
func (r *recent) keepState(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	report := reportOf(u)
	if report != nil {
		report.Disk = r.shared(report.Disk)
	}
	return keep(u, Node{Name: u.GetName(), Report: report}), nil
}

// recent are the disks that were seen last. Most nodes have the same files, and share one Disk: 5000 with 25 files each
// would be 20 MB else. Only the informer's goroutine uses it.
type recent struct {
	disks [8]*Disk
	next  int
}

// shared is a Disk that equals d, if one was seen, or d.
func (r *recent) shared(d *Disk) *Disk {
	for _, seen := range r.disks {
		if seen != nil && slices.Equal(seen.Fields, d.Fields) && maps.Equal(seen.Files, d.Files) {
			return seen
		}
	}
	r.disks[r.next] = d
	r.next = (r.next + 1) % len(r.disks)
	return d
}

// state is what of a NodeCertificateState is read.
type state struct {
	Status struct {
		State  string `json:"state"`
		Counts struct {
			Held    int `json:"held"`
			Pending int `json:"pending"`
		} `json:"counts"`
		Breaker struct {
			Unit string `json:"unit"`
		} `json:"breaker"`
		Synced struct {
			UID             string `json:"uid"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"synced"`
		Fields []plan.Field `json:"fields"`
		Files  []struct {
			Field        plan.Field     `json:"field"`
			Name         string         `json:"name"`
			Certificates []string       `json:"certificates"`
			Use          liveness.State `json:"use"`
		} `json:"files"`
	} `json:"status"`
}

// reportOf is nil if the node said nothing that can be read. The approver makes objects for nodes that have not
// reported.
func reportOf(u *unstructured.Unstructured) *Report {
	var s state
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &s); err != nil || s.Status.State == "" {
		return nil
	}
	r := &Report{At: v1alpha1.Reported(u.GetManagedFields()), State: s.Status.State,
		Held: s.Status.Counts.Held, Pending: s.Status.Counts.Pending, Breaker: s.Status.Breaker.Unit,
		Disk:   &Disk{Fields: s.Status.Fields, Files: make(map[plan.Key]File, len(s.Status.Files))},
		Synced: plan.ControllerConfig{UID: s.Status.Synced.UID, ResourceVersion: s.Status.Synced.ResourceVersion}}
	for _, f := range s.Status.Files {
		r.Files[plan.Key{Field: f.Field, Name: f.Name}] = File{Certificates: NewSet(fingerprints(f.Certificates)), Use: f.Use}
	}
	return r
}

// fingerprints are those that can be read.
func fingerprints(texts []string) (all []pki.Fingerprint) {
	for _, t := range texts {
		if raw, err := hex.DecodeString(t); err == nil && len(raw) == len(pki.Fingerprint{}) {
			all = append(all, pki.Fingerprint(raw))
		}
	}
	return all
}

// join puts together what is known of each node.
func join(nodes, states []any) []Node {
	all := make(map[string]Node, len(nodes))
	for _, o := range nodes {
		if k, ok := o.(*kept); ok {
			all[k.Name] = k.node
		}
	}
	for _, o := range states {
		if k, ok := o.(*kept); ok {
			n := all[k.Name]
			n.Name, n.Report = k.Name, k.node.Report
			all[k.Name] = n
		}
	}
	return slices.Collect(maps.Values(all))
}
