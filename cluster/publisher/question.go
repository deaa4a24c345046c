// SPDX-License-Identifier: Apache-2.0

package publisher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
	"github.com/node-cert-agent/node-cert-agent/cluster/api/v1alpha1"
	"github.com/node-cert-agent/node-cert-agent/cluster/fleet"
	"github.com/node-cert-agent/node-cert-agent/cluster/publisher/merge"
)

// question is what the nodes are asked before certificates of one NodeBundle go: whether all have what the sources
// hold. It is asked by a new version of the ControllerConfig, and is of one version of the sources. A report from
// before says nothing, and neither does an answer to an earlier question: docs/model shows how a node would be
// lost.
type question struct {
	sources string
	// ask is set if the nodes have to be asked, and asked once they were.
	ask    bool
	asked  *v1alpha1.Asked
	answer *fleet.Answer
}

// askedAnnotation of the ControllerConfig, with the name of a field after it, makes the version by which nodes are
// asked. Agents do not read it.
const askedAnnotation = "asked.node-cert-agent.io/"

// versions is a digest of what the sources are now. That of an object changes although its content may not have:
// whoever took a certificate out and put it back did both after the question.
func versions(generation int64, sources []merge.Source) string {
	h := sha256.New()
	fmt.Fprintln(h, generation)
	for _, s := range sources {
		fmt.Fprintf(h, "%q %q\n", s.Name, s.Version)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// mayGo tells whether every node has what is left, and if not, who lacks what.
func (t *turn) mayGo(nodes Fleet, uid types.UID, left []pki.Fingerprint) (bool, string) {
	q, asked := &t.question, t.bundle.Status.Asked
	if asked == nil || asked.Sources != q.sources || asked.UID != string(uid) {
		q.ask = true
		return false, "the nodes are being asked"
	}
	if q.answer == nil {
		a := nodes.Judge(fleet.Question{Key: t.key, Certificates: left, Ignore: t.ignore,
			Asked: plan.ControllerConfig{UID: asked.UID, ResourceVersion: asked.ResourceVersion}})
		q.answer = &a
	}
	return q.answer.Settled(), q.answer.String()
}

// asking is the value of the annotation if some of turns ask, else nothing.
func asking(turns []*turn) string {
	var all []string
	for _, t := range turns {
		if t.question.ask {
			all = append(all, t.question.sources)
		}
	}
	if len(all) == 0 {
		return ""
	}
	digest := sha256.Sum256([]byte(strings.Join(all, " ")))
	return hex.EncodeToString(digest[:16])
}

// removedAnnotation of the ControllerConfig, with the name of a field after it, says why this version takes
// certificates away without an answer of all nodes. The policy node-cert-publisher-removals has it in the audit log of
// the API server.
const removedAnnotation = "removed.node-cert-agent.io/"

// notes are the annotations of a version of the ControllerConfig.
func notes(field plan.Field, asks string, turns []*turn) map[string]string {
	all := make(map[string]string)
	if asks != "" {
		all[askedAnnotation+string(field)] = asks
	}
	var why []string
	for _, t := range turns {
		for _, note := range t.result.Bypassed {
			why = append(why, "NodeBundle "+t.bundle.Name+": "+note)
		}
	}
	if len(why) > 0 {
		all[removedAnnotation+string(field)] = short(strings.Join(why, "; "))
	}
	return all
}

// asked notes by which version of the ControllerConfig the nodes were asked. A later one than that which was
// written will do: whoever has read it has read that, too.
func (p *publisher) asked(ctx context.Context, turns []*turn) error {
	if asking(turns) == "" {
		return nil
	}
	is, err := p.controllerConfig(ctx)
	if err != nil {
		return err
	}
	for _, t := range turns {
		if t.question.ask && is.GetName() != "" {
			t.question.asked = &v1alpha1.Asked{Sources: t.question.sources, UID: string(is.GetUID()),
				ResourceVersion: is.GetResourceVersion()}
		}
	}
	return nil
}

// longestList is how many nodes a status names.
const longestList = 100

// report writes down what was asked and who has not answered. What was settled, or is not asked any more, goes.
func (q question) report(s *v1alpha1.NodeBundleStatus) {
	s.Blocking = nil
	switch {
	case q.asked != nil:
		s.Asked = q.asked
	case !q.ask && (q.answer == nil || q.answer.Settled()):
		s.Asked = nil
	}
	if q.answer == nil {
		return
	}
	for _, m := range q.answer.Missing[:min(len(q.answer.Missing), longestList)] {
		b := v1alpha1.Blocking{Node: printable.Text(m.Node), Reason: m.Reason}
		if !m.Since.IsZero() {
			at := metav1.NewTime(m.Since)
			b.Since = &at
		}
		s.Blocking = append(s.Blocking, b)
	}
}
