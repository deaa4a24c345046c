// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/wait"
)

const (
	rootCA   = "/etc/kubernetes/ca.crt"
	registry = "/etc/docker/certs.d/registry.example.org:5000/ca.crt"
)

// story is the main job, chapter by chapter.
type story struct {
	*transcript
	stage
	first, second, root []byte // CA certificates
	reloads             int
	begin               time.Time
	approver            *cluster.Process
}

func newStory(t *transcript, s stage) *story {
	return &story{transcript: t, stage: s, begin: time.Now(), root: testpki.NewCA("root-ca-1"),
		first: testpki.NewCA("kubelet-signer-1"), second: testpki.NewCA("kubelet-signer-2")}
}

// tell tells it all. An error comes with what the agent last said.
func (s *story) tell(ctx context.Context) error {
	chapters := []func(context.Context) error{
		s.parts, s.identity, s.firstBundle, s.rotation, s.brokenBundles, s.drift, s.ending}
	if s.units() {
		chapters = slices.Insert(chapters, 4, s.unlisted)
	}
	for _, chapter := range chapters {
		if err := chapter(ctx); err != nil {
			s.lastWords(ctx)
			return err
		}
	}
	s.say("That was the main job, in %s.", elapsed(time.Since(s.begin)))
	return nil
}

// lastWords prints what there is to understand a failure; an interruption is none.
func (s *story) lastWords(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, _ := s.sh(ctx, s.status()+"; "+s.records()+" | tail -n 20") // the error of the chapter says more than theirs
	s.say("This is what the agent said last:")
	s.quote(out)
}

// show runs a command of the stage and prints both it and what it printed.
func (s *story) show(ctx context.Context, command string) error {
	out, err := s.sh(ctx, command)
	if err != nil {
		return fmt.Errorf("$ %s\n%s%w", command, out, err)
	}
	s.quote("$ " + command + "\n" + out)
	return nil
}

// showRecords is show for a command that reads the audit trail.
func (s *story) showRecords(ctx context.Context, command string) error {
	if err := s.sync(ctx); err != nil {
		return err
	}
	return s.show(ctx, command)
}

func (s *story) parts(ctx context.Context) error {
	s.say("etcd, kube-apiserver and kube-controller-manager run on %s.", s.plane().URL())
	if s.units() {
		s.say("On the host, %s stands for a service that loads kubelet-ca.crt when it starts and when it is", cluster.Reader)
		s.say("reloaded. It is on the allowlist; %s, which does the same, is not:", cluster.Unlisted)
	} else {
		s.say("The folder is %s, called $ROOT below. Its configuration:", s.path("/"))
	}
	return s.show(ctx, "cat "+s.name(cluster.Fragment))
}

func (s *story) firstBundle(ctx context.Context) error {
	s.chapter("The first bundle")
	s.say("No step was needed from the identity to the files.")
	for file, want := range map[string][]byte{cluster.KubeletCA: s.first, rootCA: s.root, registry: s.root} {
		if err := s.awaitFile(ctx, file, want); err != nil {
			return err
		}
	}
	err := s.awaitStatus(ctx, "the agent to follow the ControllerConfig",
		func(st report.Status) bool { return st.State == "following" && s.loaded(st) })
	if err != nil {
		return err
	}
	if err := s.show(ctx, "ls -l "+s.name(cluster.KubeletCA)+" "+s.name(rootCA)+" "+s.name(registry)); err != nil {
		return err
	}
	s.contents()
	s.reloads = s.countReloads()
	return nil
}

func (s *story) rotation(ctx context.Context) error {
	s.chapter("A rotation: expand, then prune")
	s.say("The cluster publishes a second CA beside the first.")
	if err := s.rotate(ctx, slices.Concat(s.first, s.second), nil); err != nil {
		return err
	}
	if s.units() {
		s.say("(The agent waits two seconds for changes that belong together, so that they cost one reload.)")
	}
	s.say("")
	s.say("When all nodes have the second, the cluster takes the first away. The agent holds it, in case that was a " +
		"mistake:")
	s.say("here for two seconds, as configured above, by default for an hour.")
	if err := s.rotate(ctx, s.second, s.held); err != nil {
		return err
	}
	if !s.units() {
		return nil
	}
	s.say("%s has noted each load, and has what is on disk:", cluster.Reader)
	return s.show(ctx, "cat "+cluster.ReaderLog+"; cmp /run/reader.loaded "+cluster.KubeletCA+" && echo the same")
}

// held shows what waits to be removed.
func (s *story) held(ctx context.Context) error {
	if err := s.awaitStatus(ctx, "the hold", func(st report.Status) bool { return len(st.Held) == 1 }); err != nil {
		return err
	}
	return s.show(ctx, s.status()+" | sed -n '/^HELD/,$p'")
}

// rotate changes the kubelet's bundle and waits for the bytes, and for the reload where there is one. What
// there is to see in between is shown.
func (s *story) rotate(ctx context.Context, bundle []byte, between func(context.Context) error) error {
	w, err := watchFor(s.path(cluster.KubeletCA), bundle)
	if err != nil {
		return err
	}
	version, err := s.store().Patch(ctx, controllerconfig.Spec{KubeAPIServerServingCAData: bundle})
	accepted := time.Now()
	if err != nil {
		return err
	}
	if between != nil {
		if err := between(ctx); err != nil {
			return err
		}
	}
	seen, err := w.when(ctx)
	if err != nil {
		return err
	}
	s.say("The API server accepted the change as version %s. The new bytes were on disk %s later.", version,
		elapsed(max(0, seen.Sub(accepted))))
	s.contents()
	if err := s.awaitVersion(ctx, version); err != nil || !s.units() {
		return err
	}
	s.reloads++
	if err := wait.Until(ctx, "the reload of "+cluster.Reader,
		func() bool { return s.countReloads() == s.reloads }); err != nil {
		return err
	}
	s.say("systemd had reloaded %s %s after the change.", cluster.Reader, elapsed(time.Since(accepted)))
	return s.awaitStatus(ctx, "the reload to be on record", s.loaded)
}

func (s *story) unlisted(ctx context.Context) error {
	s.chapter("A unit that is not on the allowlist")
	s.say("The agent never asks for it, and cannot: only the reloader reaches systemd, and it has the allowlist.")
	s.say("This is what the agent's user is told, about another unit, another verb, and the host:")
	const call = "busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager "
	for _, try := range []string{"ReloadUnit ss " + cluster.Unlisted + " replace",
		"RestartUnit ss " + cluster.Reader + " replace", "Reboot"} {
		command := "runuser -u node-cert-agent -- " + call + try
		out, err := s.sh(ctx, command)
		var failed *host.ExitError
		if !errors.As(err, &failed) || !strings.Contains(out, "denied") && !strings.Contains(out, "authentication required") {
			return fmt.Errorf("systemd did not refuse %q to the agent's user: %s %v", try, out, err)
		}
		s.quote("$ " + command + "\n" + out)
	}
	return nil
}

func (s *story) brokenBundles(ctx context.Context) error {
	s.chapter("Broken bundles")
	s.say("The cluster publishes a bundle that is cut off in the middle of a certificate, and in the same change a")
	s.say("good new root CA.")
	s.root = testpki.NewCA("root-ca-2")
	err := s.refused(ctx, controllerconfig.Spec{KubeAPIServerServingCAData: slices.Concat(s.second,
		s.first[:len(s.first)/2]), RootCAData: s.root})
	if err != nil {
		return err
	}
	if err := s.awaitFile(ctx, rootCA, s.root); err != nil {
		return err
	}
	s.say("The root CA was good, and was written.")
	s.say("")
	s.say("Next it publishes a bundle with a private key in it.")
	err = s.refused(ctx, controllerconfig.Spec{KubeAPIServerServingCAData: slices.Concat(s.second,
		testpki.New("leaked", testpki.ECDSA).KeyPEM())})
	if err != nil {
		return err
	}
	version, err := s.store().Patch(ctx, controllerconfig.Spec{KubeAPIServerServingCAData: s.second})
	if err != nil {
		return err
	}
	s.say("The cluster corrects its bundle.")
	err = s.awaitStatus(ctx, "the refusal to be over", func(st report.Status) bool {
		return st.ControllerConfig.ResourceVersion == version && len(st.Refused) == 0
	})
	if err == nil {
		s.say("Nothing is refused any more; no file had to change for that.")
	}
	return err
}

// refused publishes a bundle for the kubelet that must not reach the disk.
func (s *story) refused(ctx context.Context, spec controllerconfig.Spec) error {
	version, err := s.store().Patch(ctx, spec)
	if err != nil {
		return err
	}
	err = s.awaitStatus(ctx, "the refusal", func(st report.Status) bool {
		return st.ControllerConfig.ResourceVersion == version && len(st.Refused) == 1
	})
	if err != nil {
		return err
	}
	if b, err := os.ReadFile(s.path(cluster.KubeletCA)); err != nil || !bytes.Equal(b, s.second) {
		return fmt.Errorf("the last good %s did not stay: %d bytes, %v", cluster.KubeletCA, len(b), err)
	}
	s.say("The agent refuses it. The last good file stays.")
	s.contents()
	if err := s.show(ctx, s.status()+" | sed -n '/^REFUSED/,/^$/p'"); err != nil {
		return err
	}
	return s.showRecords(ctx, s.record(audit.Refused, false))
}

func (s *story) drift(ctx context.Context) error {
	s.chapter("Drift")
	s.say("Somebody scribbles over the file.")
	w, err := watchFor(s.path(cluster.KubeletCA), s.second)
	if err != nil {
		return err
	}
	writes := s.published().Writes
	begin := time.Now()
	if err := s.show(ctx, "echo scribble >"+s.name(cluster.KubeletCA)); err != nil {
		return err
	}
	healed, err := w.when(ctx)
	if err != nil {
		return err
	}
	s.say("The agent put it right %s after the command began.", elapsed(healed.Sub(begin)))
	s.contents()
	return s.awaitStatus(ctx, "the repair to be on record", func(st report.Status) bool {
		return st.Writes > writes && s.loaded(st)
	})
}

func (s *story) ending(ctx context.Context) error {
	s.chapter("Status and audit trail")
	if err := s.show(ctx, s.status()); err != nil {
		return err
	}
	s.say("Every decision has left a record:")
	if err := s.showRecords(ctx, s.records()); err != nil {
		return err
	}
	s.say("Records have fields. This is the last file written, in full:")
	return s.showRecords(ctx, s.record(audit.Written, true))
}

// contents prints which certificates kubelet-ca.crt holds now.
func (s *story) contents() {
	b, _ := os.ReadFile(s.path(cluster.KubeletCA))
	var names []string
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			names = append(names, c.Subject.CommonName)
		}
	}
	s.say("kubelet-ca.crt holds %s.", strings.Join(names, " and "))
}

func (s *story) awaitFile(ctx context.Context, file string, want []byte) error {
	return wait.Until(ctx, file+" with the published bytes", func() bool {
		b, err := os.ReadFile(s.path(file))
		return err == nil && bytes.Equal(b, want)
	})
}

func (s *story) awaitVersion(ctx context.Context, version string) error {
	return s.awaitStatus(ctx, "the agent to be done with version "+version, func(st report.Status) bool {
		return st.ControllerConfig.ResourceVersion == version && st.Error == ""
	})
}

func (s *story) awaitStatus(ctx context.Context, what string, done func(report.Status) bool) error {
	return wait.Until(ctx, what, func() bool { return done(s.published()) })
}

// published is the agent's status, empty before there is one.
func (s *story) published() (st report.Status) {
	b, _ := os.ReadFile(s.path("/run/node-cert-agent/status.json"))
	_ = json.Unmarshal(b, &st)
	return st
}

// loaded tells whether every allowlisted unit has what is on disk.
func (s *story) loaded(st report.Status) bool {
	for _, u := range st.Units {
		if u.State != "up to date" {
			return false
		}
	}
	return len(st.Units) > 0 || !s.units()
}

func (s *story) countReloads() int {
	b, _ := os.ReadFile(s.path(cluster.ReaderLog)) // none yet is a count, too
	return strings.Count(string(b), "reload\n")
}
