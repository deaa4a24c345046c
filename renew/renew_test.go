// SPDX-License-Identifier: Apache-2.0

package renew

import (
	"context"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/node-cert-agent/node-cert-agent/agent/clock"
	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd/etcdtest"
	"github.com/node-cert-agent/node-cert-agent/renew/inspect"
	"github.com/node-cert-agent/node-cert-agent/renew/pair"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

// signerOf answers with what is on a host, or with an error.
type signerOf struct {
	seen inspect.Inspection
	gone atomic.Bool
}

func (s *signerOf) Inspect(context.Context) (inspect.Inspection, error) {
	if s.gone.Load() {
		return inspect.Inspection{}, errors.New("no signer")
	}
	return s.seen, nil
}

// der is a certificate as a server shows it.
func der(p testpki.Pair) []byte {
	block, _ := pem.Decode(p.Cert)
	return block.Bytes
}

func facts(p testpki.Pair, name string, addresses ...string) pair.Facts {
	leaf, err := pair.Certificate(p.Cert)
	if err != nil {
		panic(err)
	}
	return pair.Facts{Pair: pair.Pair{Name: name, Users: []pair.Component{{Program: pair.Etcd}}, Addresses: addresses},
		Leaf: pair.Describe(leaf)}
}

func TestTheDiskIsComparedWithWhatIsServed(t *testing.T) {
	ca := testpki.New("ca", testpki.ECDSA)
	disk, other := ca.Client("a"), ca.Client("a")
	shown := map[string][]byte{"same:1": der(disk), "other:1": der(other), "odd:1": []byte("x")}
	r := &Renewer{Clock: clock.System{}, Leaf: func(_ context.Context, address string) ([]byte, error) {
		if b, ok := shown[address]; ok {
			return b, nil
		}
		return nil, errors.New("nothing listens there")
	}}
	for address, want := range map[string]liveness.State{"same:1": liveness.Live, "other:1": liveness.Stale,
		"odd:1": liveness.Unknown, "none:1": liveness.Unknown} {
		r.Signer = &signerOf{seen: inspect.Inspection{Pairs: []pair.Facts{facts(disk, "etcd-server", address)}, Notes: []string{"n"}}}
		report, err := r.Report(t.Context())
		if err != nil || len(report.Pairs) != 1 || report.Pairs[0].Use.State != want || !slices.Equal(report.Notes, []string{"n"}) {
			t.Errorf("%s: %+v, %v; want %s", address, report, err, want)
		}
	}
}

func TestAReportIsReadAsItWasWritten(t *testing.T) {
	p := testpki.New("ca", testpki.ECDSA).Client("a")
	want := pair.NewReport("report", []pair.Verdict{pair.Judge(facts(p, "x"), nil, pair.Policy{}, time.Now())}, nil, time.Now())
	text, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(text)
	if err != nil || len(got.Pairs) != 1 || got.Pairs[0].Leaf != want.Pairs[0].Leaf || *got.Unrenewed != *want.Unrenewed {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "{}", `{"apiVersion":"v9"}`} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%q is a report", bad)
		}
	}
}

func TestMetricsShowDiskAndServed(t *testing.T) {
	p := testpki.New("ca", testpki.ECDSA).Client("a")
	f := facts(p, `b"ad`)
	f.Users = []pair.Component{{Program: pair.Scheduler, Started: time.Unix(9, 0)}, {Program: pair.Etcd, Started: time.Unix(8, 0)},
		{Program: pair.Scheduler, Started: time.Unix(6, 0)}, {Program: pair.Scheduler, Started: time.Unix(7, 0)}}
	v := pair.Judge(f, []pair.Served{{Address: "127.0.0.1:1", Leaf: f.Leaf}, {Address: "127.0.0.1:2", Problem: "x"}},
		pair.Policy{}, time.Now())
	unreadable := pair.Judge(pair.Facts{Pair: pair.Pair{Name: "gone"}, Problem: "x"}, nil, pair.Policy{}, time.Now())
	report := pair.NewReport("report", []pair.Verdict{v, unreadable}, nil, time.Unix(7, 0))
	report.Lock = &pair.Lock{Host: "two", Since: time.Unix(5, 0)}
	text := string(Metrics(report))
	for _, want := range []string{
		`node_cert_agent_pair_expiry_timestamp_seconds{pair="b\"ad",where="disk"} `,
		`node_cert_agent_pair_expiry_timestamp_seconds{pair="b\"ad",where="127.0.0.1:1"} `,
		`node_cert_agent_pair_user_start_timestamp_seconds{pair="b\"ad",program="etcd"} 8
node_cert_agent_pair_user_start_timestamp_seconds{pair="b\"ad",program="kube-scheduler"} 6
`, `node_cert_agent_pair_renewed{pair="b\"ad"} 0`, `node_cert_agent_pair_unreadable{pair="gone"} 1`,
		`node_cert_agent_unrenewed_expiry_timestamp_seconds{pair="b\"ad"} `,
		`node_cert_agent_pairs_inspected_timestamp_seconds 7`,
		`node_cert_agent_renewal_lock_held_timestamp_seconds{host="two"} 5`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "127.0.0.1:2") || strings.Contains(text, `expiry_timestamp_seconds{pair="gone"`) {
		t.Errorf("what nobody has seen has a date:\n%s", text)
	}
}

func TestARenewalIsPublishedBeforeItsTurnIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := newChanger("a").due("a"), pair.Facts{}
		u := unattended("one", s, &etcdtest.Store{}, yes)
		r := &Renewer{Signer: s, Clock: clock.System{}, Log: zap.NewNop(), Interval: time.Hour, Alive: func() {}, Turn: u.Turn,
			Publish: func(p pair.Report) error { f = p.Pairs[0].Facts; return nil }}
		old := s.at("a").Leaf
		s.at("a").AtStart, s.at("a").Changed, s.at("a").Users = true, time.Now(), []pair.Component{{Program: pair.Scheduler}}
		ctx, cancel := context.WithCancel(t.Context())
		u.Say = func(Outcome) { r.Refresh(ctx) }
		go func() { _ = r.Run(ctx) }()
		synctest.Wait() // nobody is back after the restart
		if !slices.Contains(s.did, "restart a") || f.Leaf == old || f.Leaf != s.at("a").Leaf {
			t.Errorf("it did %q, and published %+v", s.did, f.Leaf)
		}
		cancel()
		synctest.Wait()
	})
}

func TestWhatFailsIsSaidOnceAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.WarnLevel)
		s := &signerOf{}
		s.gone.Store(true)
		var published, alive atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		r := &Renewer{Signer: s, Clock: clock.System{}, Log: zap.New(core), Interval: time.Minute, Alive: func() { alive.Add(1) },
			Publish: func(pair.Report) error { published.Add(1); return nil }}
		go func() { _ = r.Run(ctx) }()
		<-time.After(150 * time.Second)
		synctest.Wait()
		if logged.Len() != 1 || published.Load() != 0 || alive.Load() != 3 {
			t.Errorf("%d lines, %d reports, %d looks", logged.Len(), published.Load(), alive.Load())
		}
		s.gone.Store(false)
		<-time.After(time.Minute)
		synctest.Wait()
		if logged.Len() != 1 || published.Load() != 1 {
			t.Errorf("%d lines, %d reports", logged.Len(), published.Load())
		}
		cancel()
		synctest.Wait()
	})
}
