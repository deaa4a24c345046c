// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"fmt"
	"slices"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/liveness"
)

// Mode is what a host's configuration allows.
type Mode string

// The modes. With ModeManual, root may have pairs renewed by a command; with ModeRenew, the service does so itself.
const (
	ModeReport Mode = "report"
	ModeManual Mode = "manual"
	ModeRenew  Mode = "renew"
)

// Us is the name under which this program renews pairs.
const Us = "node-cert-agent"

// Policy is what a host's configuration says about renewal.
type Policy struct {
	Mode Mode
	// RenewBefore is how long before its end a pair is due, but never more than a third of its life.
	RenewBefore time.Duration
	// WarnBefore is how long before its end a pair is worth a warning that is not renewed; no more than a quarter of its
	// life, for clusters with short lives.
	WarnBefore time.Duration
	// ThroughEtcd lets hosts ask each other, in etcd: for what needs a CA key that is on another host.
	ThroughEtcd bool
}

// State is how a pair stands.
type State string

// The states. An unreadable pair is one whose files are missing, damaged or do not belong together.
const (
	OK         State = "ok"
	Due        State = "due"
	Expiring   State = "expiring"
	Expired    State = "expired"
	Unreadable State = "unreadable"
)

// Served is what a server showed at one address: its certificate, or why there is none to see.
type Served struct {
	Address string `json:"address"`
	Leaf    Leaf   `json:"leaf,omitzero"`
	Problem string `json:"problem,omitempty"`
}

// Use is whether those who use a pair use what is on disk.
type Use struct {
	State  liveness.State `json:"state"`
	Reason string         `json:"reason,omitempty"`
}

// Verdict is what there is to say about a pair.
type Verdict struct {
	Facts
	State State `json:"state"`
	// RenewedBy is who renews the pair while nobody watches; empty for nobody, and NotRenewed then says why.
	RenewedBy  string `json:"renewedBy,omitempty"`
	NotRenewed string `json:"notRenewed,omitempty"`
	// Renewable is set if the signer would renew it when it is asked.
	Renewable bool `json:"renewable,omitempty"`
	// Requestable is set if the signer would ask a host for it that has the CA's key.
	Requestable bool `json:"requestable,omitempty"`
	// Use is left out if the pair has no users on this host.
	Use    *Use     `json:"use,omitempty"`
	Served []Served `json:"served,omitempty"`
}

// Judge says how a pair stands at a time.
func Judge(f Facts, served []Served, p Policy, now time.Time) Verdict {
	v := Verdict{Facts: f, Served: served}
	v.RenewedBy, v.NotRenewed = renewer(f, p)
	v.Renewable = f.obstacle() == "" && p.Mode != ModeReport
	v.Requestable = f.requestable() && p.Mode != ModeReport
	v.State = v.state(p, now)
	if f.Leaf != (Leaf{}) && len(f.Users) > 0 {
		v.Use = f.use(served)
	}
	return v
}

// Starts are when the programs that use a pair started: of several processes of one program, the first.
func (f Facts) Starts() map[Program]time.Time {
	all := map[Program]time.Time{}
	for _, c := range f.Users {
		if at, ok := all[c.Program]; !ok || c.Started.Before(at) {
			all[c.Program] = c.Started
		}
	}
	return all
}

// StaleReason is why those who use the pair use another one; empty if they were not seen to.
func (v Verdict) StaleReason() string {
	if v.Use == nil || v.Use.State != liveness.Stale {
		return ""
	}
	return v.Use.Reason
}

// renewer says who renews a pair unattended, or why nobody does.
func renewer(f Facts, p Policy) (who, whyNot string) {
	obstacle := f.obstacle()
	switch {
	case f.Manager == string(Kubelet):
		return f.Manager, ""
	case f.requestable() && p.Mode == ModeRenew && p.ThroughEtcd:
		return Us, ""
	case f.requestable() && p.Mode != ModeReport:
		return "", "the key of its CA is on another host: node-cert-agent renew request " + f.Name
	case obstacle != "":
		return "", obstacle
	case p.Mode == ModeRenew:
		return Us, ""
	case p.Mode == ModeManual:
		return "", "a person has to: node-cert-agent renew now " + f.Name
	}
	return "", "this host only reports: renewal.mode is report"
}

// keyElsewhere is an obstacle that another host can help with.
const keyElsewhere = "the key of its CA is not on this host"

// requestable tells whether a host that has the CA's key can be asked for the successor: for the one client of an etcd
// that is elsewhere.
func (f Facts) requestable() bool {
	return f.Name == apiserverEtcdClient && f.obstacle() == keyElsewhere
}

// obstacle is why the signer of this host cannot renew a pair; empty if it can.
func (f Facts) obstacle() string {
	switch {
	case f.Manager == string(Kubelet):
		return "the kubelet renews it"
	case f.Manager != "":
		return f.Manager + " renews it only when it starts"
	case f.Problem != "":
		return f.Problem
	case f.Foreign != "":
		return f.Foreign
	case f.CA == nil:
		return "no CA on this host has signed it"
	case !f.CA.NotAfter.After(f.Leaf.NotAfter):
		return "its CA ends with it: the CA has to be renewed first"
	case !f.CA.KeyHere:
		return keyElsewhere
	}
	return ""
}

// state follows from how much of a pair's life is left.
func (v Verdict) state(p Policy, now time.Time) State {
	left := v.Leaf.NotAfter.Sub(now)
	switch {
	case v.Leaf == (Leaf{}) || v.Problem != "":
		return Unreadable
	case left <= 0:
		return Expired
	case v.RenewedBy != string(Kubelet) && left < min(p.WarnBefore, v.life()/4):
		return Expiring
	case (v.Renewable || v.Requestable) && v.Due(p, now):
		return Due
	}
	return OK
}

// Due tells whether so little of a pair's life is left that it is to be renewed.
func (f Facts) Due(p Policy, now time.Time) bool {
	return f.Leaf.NotAfter.Sub(now) < min(p.RenewBefore, f.life()/3)
}

// life is how long a pair was made for. A certificate can have the NotBefore of its CA: etcdadm's and some of
// kubeadm's do. No leaf of theirs lives for more than a year from its making.
func (f Facts) life() time.Duration {
	return min(f.Leaf.NotAfter.Sub(f.Leaf.NotBefore), 365*24*time.Hour)
}

// use compares the disk with what servers show, and with when those started who read the pair only then.
func (f Facts) use(served []Served) *Use {
	for _, c := range f.Users {
		if f.AtStart && c.Started.Before(f.Changed) {
			return &Use{liveness.Stale, fmt.Sprintf("%s (pid %d) started before the file was changed, "+
				"and reads it only when it starts", c.Program, c.PID)}
		}
	}
	if f.AtStart {
		return &Use{State: liveness.Live}
	}
	if len(f.Addresses) == 0 {
		return &Use{liveness.Unknown, "its users read it anew for new connections, and none shows which one it has"}
	}
	shows := func(s Served) bool { return s.Leaf.SHA256 == f.Leaf.SHA256 }
	if i := slices.IndexFunc(served, func(s Served) bool { return s.Problem == "" && !shows(s) }); i >= 0 {
		return &Use{liveness.Stale, fmt.Sprintf("%s serves another certificate, which ends at %s", served[i].Address,
			served[i].Leaf.NotAfter.Format(time.RFC3339))}
	}
	if i := slices.IndexFunc(served, func(s Served) bool { return s.Problem != "" }); i >= 0 {
		return &Use{liveness.Unknown, served[i].Address + ": " + served[i].Problem}
	}
	if len(served) == 0 {
		return &Use{liveness.Unknown, "nobody has asked its server"}
	}
	return &Use{State: liveness.Live}
}
