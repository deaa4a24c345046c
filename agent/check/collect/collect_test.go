// SPDX-License-Identifier: Apache-2.0

package collect_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/check/collect"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// journal is a host that notes what is done to it.
type journal struct {
	said    []string
	dials   int
	refuses error // instead of becoming the service's user
}

func (j *journal) say(format string, args ...any) {
	j.said = append(j.said, fmt.Sprintf(format, args...))
}

func (j *journal) dial() (collect.Access, error) {
	j.dials++
	n := j.dials
	return collect.Access{
		Writer:   writer(func(keys int) { j.say("%d: observe %d", n, keys) }),
		Status:   func() (report.Status, error) { return report.Status{}, errors.New("none") },
		Identity: func(string) (*apiserver.Conn, error) { j.say("%d: identity", n); return nil, errors.New("none") },
		Close:    func() { j.say("%d: close", n) },
	}, nil
}

func (j *journal) become() error { j.say("become"); return j.refuses }

// writer answers every question, and tells how many files it was about.
type writer func(keys int)

func (w writer) Observe(_ context.Context, queries []plan.Query) ([]plan.File, error) {
	w(len(queries))
	return make([]plan.File, len(queries)), nil
}

func (j *journal) options(t *testing.T) collect.Options {
	specs := []plan.FileSpec{{Field: plan.RootCAData, Path: "/etc/kubernetes/ca.crt"}}
	return collect.Options{Config: config.Options{Root: t.TempDir()}, Dial: j.dial, Become: j.become,
		Settings: config.Settings{Policy: unitplan.Policy{Policy: plan.Policy{Files: specs}}}}
}

func TestWhatCountsIsSeenAsTheServiceOverConnectionsOfItsOwn(t *testing.T) {
	var j journal
	if _, err := collect.Facts(t.Context(), j.options(t)); err != nil {
		t.Fatal(err)
	}
	want := []string{"1: observe 1", "become", "1: close", "2: observe 1", "2: identity", "2: close"}
	if !slices.Equal(j.said, want) {
		t.Errorf("done was %q, want %q", j.said, want)
	}
}

func TestWhoCannotBecomeTheServiceSeesNoMore(t *testing.T) {
	j := journal{refuses: errors.New("no")}
	if _, err := collect.Facts(t.Context(), j.options(t)); !errors.Is(err, j.refuses) {
		t.Errorf("it ends with %v", err)
	}
	if want := []string{"1: observe 1", "become", "1: close"}; !slices.Equal(j.said, want) {
		t.Errorf("done was %q, want %q", j.said, want)
	}
}
