// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
	"github.com/node-cert-agent/node-cert-agent/agent/printable"
)

// The answers of HTTP that mean something here.
const fine, unauthorized, forbidden, notFound = 200, 401, 403, 404

// serviceFacts is the running agent, by its own account.
type serviceFacts struct {
	// Looked is set if systemd was asked, and Active if it runs.
	Looked, Active bool
	// Published is set if there is a status: its state, reason and trouble, and what it refuses.
	Published            bool
	State, Reason, Error string
	Refused              []plan.Refusal
	// Renew is when it asks for the next certificate, zero if that is unknown.
	Renew time.Time
}

// identityFacts is as whom this host speaks to the API server.
type identityFacts struct {
	// Problem is why there is none. Unseen is set if the one of the service may not be looked at.
	Problem string
	Unseen  bool
	// NotBefore and NotAfter are its certificate's, zero if it has none; Foreign is set if something
	// else maintains it.
	NotBefore, NotAfter time.Time
	Foreign             bool
}

// API is what the API server answered; the zero value is for one that was not asked.
type API struct {
	Asked     bool
	Server    string
	Status    int // HTTP; 0 is no answer
	Reason    string
	Untrusted bool
	User      string
	MayAsk    bool
	AskReason string
	// Objects are those that are watched, if the server answered at all.
	Objects []Object
}

// Object is what the API server answered to reading one of those that are watched.
type Object struct {
	// Kind and Name are its own, with the resource in Name, Status that of the answer, with the Reason of a failure,
	// and NoKind is set if the server has no such kind.
	Kind   string
	Name   string
	Status int // HTTP; 0 is no answer
	Reason string
	NoKind bool
}

// clockFacts holds times that have certainly passed: of the API server, when this program was built, and
// the newest NotBefore of what is trusted here. Zero is unknown.
type clockFacts struct{ Server, Built, Newest time.Time }

func service(f Facts, r *report) {
	const what = "service"
	s := f.Service
	if s.Looked && !s.Active {
		r.add(Warn, what, "systemctl enable --now node-cert-agent.service", "node-cert-agent.service does not run")
	}
	if !s.Published || s.Looked && !s.Active {
		return
	}
	good := true
	bad := func(l Level, do, format string, args ...any) {
		good = false
		r.add(l, what, do, format, args...)
	}
	if s.Error != "" {
		bad(Fail, "journalctl -u node-cert-agent", "its last reconcile could not be finished: %s", printable.Text(s.Error))
	}
	if s.State != "following" {
		bad(Warn, "node-cert-agent status", "%s", printable.Text(strings.TrimSuffix(s.State+": "+s.Reason, ": ")))
	}
	for _, refused := range s.Refused {
		bad(Warn, "correct the ControllerConfig or the configuration", "it refuses %s: %s",
			printable.Text(refused.Key.String()), printable.Text(refused.Reason))
	}
	if good {
		r.ok(what, "following")
	}
}

func identity(f Facts, r *report) {
	const what = "identity"
	const stale = "systemctl status node-cert-agent; with a file in /etc/node-cert-agent/bootstrap.d it gets another"
	i, end := f.Identity, f.Identity.NotAfter
	left := end.Sub(f.Now)
	switch {
	case i.Unseen:
	case i.Problem != "" && f.Service.State == "following" && f.Service.Active:
		r.add(Warn, what, "node-cert-agent check --kubeconfig FILE, with the file that the service was given",
			"not the service's own, which follows: %s", printable.Text(i.Problem))
	case i.Problem != "":
		r.add(Fail, what, "put a kubeconfig with a bootstrap token into /etc/node-cert-agent/bootstrap.d; node-cert-agent "+
			"status says how far it is", "%s", printable.Text(i.Problem))
	case end.IsZero():
		r.ok(what, "without a certificate, from a kubeconfig that something else maintains")
	case left <= 0:
		r.add(Fail, what, stale, "its certificate ended at %s", stamp(end))
	case !i.Foreign && overdue(f):
		r.add(Warn, what, stale, "its certificate ends at %s and should have been renewed by now", stamp(end))
	case i.Foreign && left < end.Sub(i.NotBefore)/10:
		r.add(Warn, what, "renew the kubeconfig's certificate", "the kubeconfig's certificate ends at %s", stamp(end))
	default:
		r.ok(what, "until %s", stamp(end))
	}
}

// overdue gives a renewal that was announced an hour, in which the API server may have been away; one
// that nobody announced is due with a tenth of the life left (identity renews with 10 to 30 %).
func overdue(f Facts) bool {
	if renew := f.Service.Renew; !renew.IsZero() {
		return f.Now.After(renew.Add(time.Hour))
	}
	i := f.Identity
	return i.NotAfter.Sub(f.Now) < i.NotAfter.Sub(i.NotBefore)/10
}

func server(f Facts, r *report) {
	const what = "API server"
	switch a := f.API; {
	case !a.Asked:
	case a.Untrusted:
		r.add(Fail, what, "put a bootstrap file with the server's CA into /etc/node-cert-agent/bootstrap.d",
			"%s cannot be verified: %s", a.Server, printable.Text(a.Reason))
	case a.Status == 0:
		r.add(Fail, what, "look at the network and at the API server; files stay as they are until it answers",
			"%s does not answer: %s", a.Server, printable.Text(a.Reason))
	case a.Status == unauthorized:
		r.add(Fail, what, "put a kubeconfig with a bootstrap token into /etc/node-cert-agent/bootstrap.d",
			"%s does not know us", a.Server)
	case a.Status >= 300:
		r.add(Fail, what, "", "%s: %s", a.Server, printable.Text(a.Reason))
	default:
		r.ok(what, "%s knows us as %s", a.Server, printable.Text(a.User))
		renewal(f, r)
	}
}

const rights = "kubectl apply -k packaging/kubernetes"

func renewal(f Facts, r *report) {
	const what = "renewal"
	switch a := f.API; {
	case f.Identity.Foreign:
	case a.AskReason != "":
		r.add(Warn, what, "", "whether it is permitted could not be asked: %s", printable.Text(a.AskReason))
	case !a.MayAsk:
		r.add(Fail, what, rights, "%s may not request certificates, and ends with the one it has", printable.Text(a.User))
	default:
		r.ok(what, "permitted")
	}
}

func objects(f Facts, r *report) {
	for _, o := range f.API.Objects {
		switch what := o.Kind; {
		case o.NoKind:
			r.add(Fail, what, "choose the profile of this cluster, or install the kind: "+rights,
				"the server has no %s, which is what profile %s watches", o.Name, f.Profile)
		case o.Status == notFound:
			r.add(Warn, what, "create it, or configure its name", "%s does not exist", o.Name)
		case o.Status == forbidden:
			r.add(Fail, what, rights, "%s may not be read: %s", o.Name, printable.Text(o.Reason))
		case o.Status != fine:
			r.add(Fail, what, "", "%s could not be read: %s", o.Name, printable.Text(o.Reason))
		default:
			r.ok(what, "%s may be read", o.Name)
		}
	}
}

// tolerance is by how much clocks differ that are well: Date has whole seconds and is a moment old.
// beyond is where certificates of five minutes ago, which is what Kubernetes dates them back, are not
// valid yet.
const tolerance, beyond = 10 * time.Second, 5 * time.Minute

func clock(f Facts, r *report) {
	const what, do = "clock", "timedatectl timesync-status, or chronyc tracking"
	c := f.Clock
	off := f.Now.Sub(c.Server).Round(time.Second)
	switch {
	case f.Now.Before(c.Built):
		r.add(Fail, what, do, "%s is before this program was built", stamp(f.Now))
	case !c.Server.IsZero() && off.Abs() > beyond:
		r.add(Fail, what, do, "%s", drift(off))
	case !c.Server.IsZero() && off.Abs() > tolerance:
		r.add(Warn, what, do, "%s", drift(off))
	case f.Now.Before(c.Newest):
		r.add(Warn, what, do, "%s is before a certificate here becomes valid, at %s", stamp(f.Now), stamp(c.Newest))
	case c.Server.IsZero():
		r.ok(what, "%s is possible; no API server to compare with", stamp(f.Now))
	default:
		r.ok(what, "as the API server's")
	}
}

func drift(off time.Duration) string {
	if off < 0 {
		return fmt.Sprintf("%v behind the API server's", -off)
	}
	return fmt.Sprintf("%v ahead of the API server's", off)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
