// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
)

// fleetStatus is how all nodes stand.
type fleetStatus struct {
	Nodes []nodeStatus `json:"nodes"`
	// Versions are how many nodes are in line with which version of the ControllerConfig.
	Versions map[string]int `json:"versions"`
	// Bundles are the NodeBundles that not every node has, or with a certificate on its way out.
	Bundles []bundleStatus `json:"bundles"`
}

// nodeStatus is how one node stands.
type nodeStatus struct {
	Name string `json:"name"`
	// State is empty if the node never reported.
	State string `json:"state,omitempty"`
	// Reported is when it wrote last, by the clock of the API server.
	Reported *time.Time `json:"reported,omitempty"`
	Version  string     `json:"controllerConfigVersion,omitempty"`
	Held     int        `json:"held"`
	Pending  int        `json:"pending"`
	Breaker  string     `json:"breaker,omitempty"`
	// Troubles are the reasons of the conditions that are not as they should be, by type.
	Troubles map[string]string `json:"troubles,omitempty"`
}

// bundleStatus is how a NodeBundle stands.
type bundleStatus struct {
	Name  string `json:"name"`
	Field string `json:"field"`
	// Nodes is how many have all certificates, of how many: 4/5.
	Nodes string `json:"nodes"`
	// Held is how many certificates no source has any more, and Reason why they stay.
	Held   int    `json:"held"`
	Reason string `json:"reason,omitempty"`
}

func statusCommand(c *connection) *cobra.Command {
	var form output
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how each node stands",
		RunE: func(cmd *cobra.Command, _ []string) error {
			to, err := c.cluster()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), listTimeout)
			defer cancel()
			s, err := readStatus(ctx, to)
			if err != nil {
				return err
			}
			return form.print(cmd.OutOrStdout(), s, func(out io.Writer) { s.print(out, time.Now()) })
		},
	}
	form.flag(cmd)
	return cmd
}

// readStatus reads all nodes and what they report. A cluster without NodeBundles has none that anybody waits for.
func readStatus(ctx context.Context, to cluster) (fleetStatus, error) {
	known := make(map[string]nodeStatus)
	err := each(ctx, to, nodes, func(n metav1.PartialObjectMetadata) { known[n.Name] = nodeStatus{Name: n.Name} })
	if err != nil {
		return fleetStatus{}, err
	}
	s := fleetStatus{Versions: make(map[string]int)}
	err = each(ctx, to, states, func(o summary) { known[o.Name] = statusOf(o.state()) })
	if err != nil {
		return fleetStatus{}, err
	}
	err = each(ctx, to, bundles, func(b v1alpha1.NodeBundle) {
		if x, open := rotating(b); open {
			s.Bundles = append(s.Bundles, x)
		}
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fleetStatus{}, err
	}
	s.Nodes = slices.SortedFunc(maps.Values(known), func(a, b nodeStatus) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range s.Nodes {
		if n.Version != "" {
			s.Versions[n.Version]++
		}
	}
	return s, nil
}

func statusOf(o v1alpha1.NodeCertificateState) nodeStatus {
	n := nodeStatus{Name: o.Name, State: o.Status.State, Version: o.Status.Synced.ResourceVersion,
		Held: o.Status.Counts.Held, Pending: o.Status.Counts.Pending, Troubles: troubles(o)}
	if at := reported(o); !at.IsZero() {
		n.Reported = &at
	}
	if b := o.Status.Breaker; b != nil {
		n.Breaker = b.Unit
	}
	return n
}

// troubles are the reasons of what is not as it should be. What cannot be known is none, but for Synced.
func troubles(o v1alpha1.NodeCertificateState) map[string]string {
	t := make(map[string]string)
	for _, c := range o.Status.Conditions {
		bad := c.Status == metav1.ConditionFalse
		switch c.Type {
		case v1alpha1.Paused:
			bad = c.Status == metav1.ConditionTrue
		case v1alpha1.Synced:
			bad = c.Status != metav1.ConditionTrue
		}
		if bad {
			t[c.Type] = c.Reason
		}
	}
	return t
}

// rotating tells of a NodeBundle that not every node has, or that publishes what no source has any more.
func rotating(b v1alpha1.NodeBundle) (bundleStatus, bool) {
	x := bundleStatus{Name: b.Name, Field: b.Spec.Field, Nodes: b.Status.Counts.Nodes, Held: b.Status.Counts.Held}
	if c := meta.FindStatusCondition(b.Status.Conditions, "Converged"); c != nil && c.Status != metav1.ConditionTrue {
		x.Reason = c.Reason
	}
	have, all := 0, 0
	_, err := fmt.Sscanf(x.Nodes, "%d/%d", &have, &all)
	return x, x.Held > 0 || err == nil && have < all
}

// print shows one node a line, and then what an operator looks for first.
func (s fleetStatus) print(out io.Writer, now time.Time) {
	lines := [][]string{{"NODE", "STATE", "SYNCED", "VERSION", "HELD", "PENDING", "BREAKER", "REPORTED"}}
	for _, n := range s.Nodes {
		if n.State == "" {
			lines = append(lines, []string{n.Name, "never reported", "", "", "", "", "", ""})
			continue
		}
		lines = append(lines, []string{n.Name, n.State, cmp.Or(n.Troubles[v1alpha1.Synced], "True"), n.Version,
			strconv.Itoa(n.Held), strconv.Itoa(n.Pending), n.Breaker, since(n.Reported, now)})
	}
	columns(out, lines)
	s.summarize(out, now)
}

func (s fleetStatus) summarize(out io.Writer, now time.Time) {
	count := func(is func(nodeStatus) bool) (n int) {
		for _, x := range s.Nodes {
			if is(x) {
				n++
			}
		}
		return n
	}
	trouble := func(kind, reason string) int {
		return count(func(n nodeStatus) bool { r, is := n.Troubles[kind]; return is && (reason == "" || r == reason) })
	}
	fmt.Fprintf(out, "\n%d nodes: %d follow, %d never reported, %d hold removals, %d refuse a field, %d have a consumer "+
		"that is not live, %d are paused, %d have a breaker open\n", len(s.Nodes),
		count(func(n nodeStatus) bool { return n.State == "following" }),
		count(func(n nodeStatus) bool { return n.State == "" }), count(func(n nodeStatus) bool { return n.Held > 0 }),
		trouble(v1alpha1.Synced, "Refused"), trouble(v1alpha1.ConsumersLive, ""), trouble(v1alpha1.Paused, ""),
		count(func(n nodeStatus) bool { return n.Breaker != "" }))
	if len(s.Versions) > 1 {
		for _, v := range slices.Sorted(maps.Keys(s.Versions)) {
			fmt.Fprintf(out, "version %s: %d nodes\n", printable.Text(v), s.Versions[v])
		}
	}
	if n := s.oldest(); n.Reported != nil {
		fmt.Fprintf(out, "the oldest report is of %s, %s ago\n", printable.Text(n.Name), since(n.Reported, now))
	}
	for _, b := range s.Bundles {
		fmt.Fprintf(out, "%s (%s): %s nodes have all certificates; %d of them no source has any more", b.Name, b.Field,
			dash(b.Nodes), b.Held)
		if b.Reason != "" {
			fmt.Fprintf(out, ": %s", b.Reason)
		}
		fmt.Fprintln(out)
	}
}

// oldest is the node that was heard of least lately.
func (s fleetStatus) oldest() (old nodeStatus) {
	for _, n := range s.Nodes {
		if n.Reported != nil && (old.Reported == nil || n.Reported.Before(*old.Reported)) {
			old = n
		}
	}
	return old
}

// since is the time that has passed, as kubectl prints ages.
func since(at *time.Time, now time.Time) string {
	if at == nil || at.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(*at))
}

func dash(s string) string { return cmp.Or(s, "-") }
