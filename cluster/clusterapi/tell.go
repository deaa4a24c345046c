// SPDX-License-Identifier: Apache-2.0

package clusterapi

import (
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

const (
	// longest is how many bytes an Event says: it takes 1024.
	longest = 1000
	// again is when the same is told once more: an API server drops an Event after an hour.
	again = time.Hour
)

// subject is what a teller tells about: an object, and one side of it.
type subject struct {
	object types.UID
	about  string
}

// told is what was told last.
type told struct {
	reason, note string
	at           time.Time
}

// teller records Events and log entries, and repeats itself once in an hour at most.
type teller struct {
	events events.EventRecorder
	log    *zap.Logger
	now    func() time.Time

	mu   sync.Mutex
	last map[subject]told
}

func newTeller(e events.EventRecorder, log *zap.Logger) *teller {
	return &teller{events: e, log: log, now: time.Now, last: make(map[subject]told)}
}

// wrong tells what is wrong about one side of an object.
func (t *teller) wrong(o *unstructured.Unstructured, about, reason, note string) {
	t.say(o, about, corev1.EventTypeWarning, reason, note)
}

// done tells what was done, each time.
func (t *teller) done(o *unstructured.Unstructured, about, reason, note string) {
	t.well(o, about)
	t.say(o, about, corev1.EventTypeNormal, reason, note)
	t.well(o, about)
}

// well forgets what was wrong: the next time it is told at once.
func (t *teller) well(o *unstructured.Unstructured, about string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, subject{o.GetUID(), about})
}

func (t *teller) say(o *unstructured.Unstructured, about, kind, reason, note string) {
	note = printable.Text(note)
	note = note[:min(len(note), longest)]
	now := t.now()
	t.mu.Lock()
	for key, was := range t.last { // what is no longer there goes by its age
		if now.Sub(was.at) >= again {
			delete(t.last, key)
		}
	}
	was, known := t.last[subject{o.GetUID(), about}]
	t.last[subject{o.GetUID(), about}] = told{reason, note, now}
	if known && was.reason == reason && was.note == note {
		t.last[subject{o.GetUID(), about}] = was
	}
	t.mu.Unlock()
	if known && was.reason == reason && was.note == note {
		return
	}
	t.events.Eventf(o, nil, kind, reason, about, "%s", note)
	t.log.Info(note, zap.String("reason", reason), zap.String("kind", o.GetKind()),
		zap.String("namespace", o.GetNamespace()), zap.String("name", o.GetName()))
}
