// SPDX-License-Identifier: Apache-2.0

package objects_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/watch"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/objects"
)

// table is the shipped file table, and whether it refuses questionable content.
func table(strict bool) (specs []plan.FileSpec) {
	files := map[plan.Field]string{
		plan.KubeAPIServerServingCAData:  "/etc/kubernetes/kubelet-ca.crt",
		plan.CloudProviderCAData:         "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
		plan.RootCAData:                  "/etc/kubernetes/ca.crt",
		plan.AdditionalTrustBundle:       "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
		plan.ImageRegistryBundleData:     "/etc/docker/certs.d/{name}/ca.crt",
		plan.ImageRegistryBundleUserData: "/etc/docker/certs.d/{name}/ca.crt",
	}
	for _, id := range plan.Fields() {
		if file, ok := files[id]; ok {
			specs = append(specs, plan.FileSpec{Field: id, Path: file, Mode: 0o644, Strict: strict})
		}
	}
	return specs
}

// desired is what the agent makes of an object that it has just read over a verified connection.
func desired(t *testing.T, object []byte, specs []plan.FileSpec) plan.Desired {
	t.Helper()
	o, err := watch.DecodeObject(bytes.NewReader(object))
	if err != nil {
		t.Fatal(err)
	}
	d := new(watch.Projector).Project(o, specs, objects.Clock)
	d.Verified = true
	return d
}

// outcome is what happens on a host without managed files, a line for each thing.
func outcome(t *testing.T, object []byte) (lines []string) {
	t.Helper()
	specs := table(false)
	d := desired(t, object, specs)
	p := plan.Compute(plan.Input{Desired: d, Policy: plan.Policy{Files: specs}})
	lines = written(p)
	for _, id := range slices.Sorted(maps.Keys(d.Listed)) {
		lines = append(lines, "takes "+string(id)+" for complete")
	}
	lines = append(lines, refused(p)...)
	beside := table(false)
	for i, r := range beside {
		beside[i] = r.With([]plan.Writer{plan.MachineConfigDaemon})
	}
	for _, r := range desired(t, object, beside).Refused {
		if !slices.Contains(d.Refused, r) {
			lines = append(lines, "refuses "+r.Key.String()+" beside other writers: "+r.Reason)
		}
	}
	for _, r := range desired(t, object, table(true)).Refused {
		if strings.HasPrefix(r.Reason, "strict: ") {
			lines = append(lines, "refuses "+r.Key.String()+" where the file is strict")
		}
	}
	return orNothing(lines)
}

// written has a line for each file that p writes.
func written(p plan.Plan) (lines []string) {
	for _, w := range p.Writes {
		line := "writes " + w.Path
		if len(w.Certs) > 0 {
			line += fmt.Sprintf(", certificates %d", len(w.Certs))
		}
		line += ", sha256 " + w.Digest.String()
		if len(w.Warnings) > 0 {
			line += ", warned of " + strings.Join(w.Warnings, " and ")
		}
		lines = append(lines, line)
	}
	return lines
}

// refused has a line for each refusal.
func refused(p plan.Plan) (lines []string) {
	for _, r := range p.Refused {
		lines = append(lines, "refuses "+r.Key.String()+": "+r.Reason)
	}
	return lines
}

func orNothing(lines []string) []string {
	if len(lines) == 0 {
		return []string{"nothing"}
	}
	return lines
}

func all(t *testing.T) []objects.Case { return cases(t, objects.Objects, 60) }

// cases are those of a kind, of which there are at least as many.
func cases(t *testing.T, kind objects.Kind, least int) []objects.Case {
	t.Helper()
	all, err := objects.All(kind)
	if err != nil || len(all) < least {
		t.Fatalf("%d cases: %v", len(all), err)
	}
	return all
}

func TestEveryObjectHasExactlyItsOutcome(t *testing.T) {
	exactly(t, objects.Objects, all(t), func(t *testing.T, c objects.Case) []string { return outcome(t, c.Object) })
}

// exactly compares what becomes of each case with what stands in its file; nothing secret may be in it.
func exactly(t *testing.T, kind objects.Kind, cases []objects.Case, outcome func(*testing.T, objects.Case) []string) {
	t.Helper()
	update := map[string][]string{}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			got := outcome(t, c)
			if update[filepath.Join(string(kind), c.Name)] = got; !slices.Equal(got, c.Outcome) {
				t.Errorf("the outcome is\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.Outcome, "\n  "))
			}
			for _, s := range objects.Secrets() {
				if strings.Contains(strings.Join(got, "\n"), s) {
					t.Errorf("the outcome shows the secret: %q", got)
				}
			}
		})
	}
	// For whoever has read the differences: CORPUS=accept go test ./tests/objects
	if os.Getenv("CORPUS") == "accept" {
		if err := objects.Write(update); err != nil {
			t.Fatal(err)
		}
	}
}

func TestObjectsTooLargeToStore(t *testing.T) {
	for name, want := range map[string]string{
		"2 MiB":             "refuses rootCAData: is larger than 1048576 bytes",
		"10 000 registries": "refuses imageRegistryBundleData: has more than 1000 entries",
	} {
		got := outcome(t, objects.Large()[name])
		if len(got) != 2 || !strings.HasPrefix(got[0], "writes /etc/kubernetes/kubelet-ca.crt, ") || got[1] != want {
			t.Errorf("%s: the outcome is %q, want the other field written and %q", name, got, want)
		}
	}
}

func TestTheStoredCorpusIsTheGeneratedOne(t *testing.T) {
	for name, want := range objects.Generated() {
		got, err := os.ReadFile(filepath.Join(objects.Dir(), name))
		if err != nil || !bytes.HasPrefix(got, append(want, "---\n# The outcome "...)) {
			t.Errorf("%s is not what the table makes (%v); go run ./tests/cmd/objects", name, err)
		}
	}
}

// followed is a host that has just done all that d asks for.
func followed(d plan.Desired, policy plan.Policy) (plan.Observed, plan.Memory) {
	on, owned := plan.Observed{}, map[string]plan.Claim{}
	for _, w := range plan.Compute(plan.Input{Desired: d, Policy: policy}).Writes {
		spec, _ := policy.File(w.Field)
		on[w.Key] = plan.File{Kind: plan.Regular, Digest: w.Digest, Mode: spec.Mode, Data: w.Data}
		if spec.Many() {
			owned[w.Path] = plan.Claim{Key: w.Key, Digests: []plan.Digest{w.Digest}}
		}
	}
	return on, plan.Memory{Owned: owned}
}

// step is the way of a host from one object to another.
type step struct {
	name   string
	policy plan.Policy
	now    plan.Desired // what the second object says by itself
	plan   plan.Plan
}

// steps calls f for the way from each object to each, under every rule for removals of trust.
func steps(t *testing.T, f func(step)) {
	t.Helper()
	for _, trust := range []plan.Trust{{Hold: time.Hour}, {Hold: 0}, {Mirror: true}} {
		policy := plan.Policy{Files: table(false), Trust: trust}
		cases := all(t)
		asked := make([]plan.Desired, len(cases))
		for i, c := range cases {
			asked[i] = desired(t, c.Object, policy.Files)
		}
		for i, from := range cases {
			on, memory := followed(asked[i], policy)
			known := map[plan.Digest]pki.Content{}
			for _, e := range asked[i].Entries {
				known[e.Digest] = pki.Content{Certs: e.Certs, Whole: true}
			}
			for j, to := range cases {
				p := plan.Compute(plan.Input{Desired: asked[j].Carry(asked[i], policy), Observed: on, Memory: memory,
					Policy: policy, Known: known,
					Now: plan.Moment{Boot: "b", Uptime: time.Hour, Wall: objects.Clock}})
				f(step{fmt.Sprintf("%s to %s with %+v", from.Name, to.Name, trust), policy, asked[j], p})
			}
		}
	}
}

func (s step) path(k plan.Key) string {
	spec, _ := s.policy.File(k.Field)
	p, _ := spec.PathOf(k.Name)
	return p
}

func TestFromEveryObjectToEveryOtherNothingIsEmptied(t *testing.T) {
	steps(t, func(s step) {
		for _, w := range s.plan.Writes {
			if len(w.Certs) == 0 || len(bytes.TrimSpace(w.Data)) == 0 {
				t.Errorf("%s: %s is emptied", s.name, w.Path)
			}
		}
		for _, r := range s.plan.Removes {
			if spec, _ := s.policy.File(r.Field); !spec.Many() || !s.now.Listed[r.Field] {
				t.Errorf("%s: %s is removed, and no complete list leaves it out", s.name, r.Path)
			}
		}
	})
}

func TestFromEveryObjectToEveryOtherTheWriterTakesWhatIsPlanned(t *testing.T) {
	steps(t, func(s step) {
		for _, w := range s.plan.Writes {
			spec, _ := s.policy.File(w.Field)
			if _, err := spec.Check(w.Data); err != nil {
				t.Errorf("%s: %s: %v", s.name, w.Path, err)
			}
		}
	})
}

func TestFromEveryObjectToEveryOtherTheLastGoodFileOutlivesARefusal(t *testing.T) {
	steps(t, func(s step) {
		for _, r := range s.now.Refused {
			if slices.ContainsFunc(s.plan.Removes, func(x plan.Removal) bool {
				return x.Key == r.Key || x.Path == s.path(r.Key)
			}) ||
				slices.ContainsFunc(s.plan.Writes, func(x plan.Write) bool { return x.Key == r.Key }) {
				t.Errorf("%s: %s is refused, and its file is touched", s.name, r.Key)
			}
		}
	})
}

func TestFromEveryObjectToEveryOtherNoValidTrustGoesBeforeItsTime(t *testing.T) {
	steps(t, func(s step) {
		if s.policy.Trust.Hold == 0 {
			return
		}
		for _, w := range s.plan.Writes {
			for _, c := range w.Removed {
				if objects.Clock.Before(c.NotAfter) {
					t.Errorf("%s: %s loses %s at once", s.name, w.Path, c.Subject)
				}
			}
		}
		for _, r := range s.plan.Removes {
			t.Errorf("%s: %s is removed at once", s.name, r.Path)
		}
	})
}

func TestAnObjectThatIsThereAlreadyIsNoPlan(t *testing.T) {
	policy := plan.Policy{Files: table(false), Trust: plan.Trust{Hold: time.Hour}}
	for _, c := range all(t) {
		d := desired(t, c.Object, policy.Files)
		on, memory := followed(d, policy)
		if p := plan.Compute(plan.Input{Desired: d, Observed: on, Memory: memory, Policy: policy}); !p.Empty() {
			t.Errorf("%s: the second plan is\n%s", c.Name, p)
		}
	}
}
