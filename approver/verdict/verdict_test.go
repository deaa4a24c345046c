// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/node-cert-agent/node-cert-agent/agent/csr"
)

var (
	now    = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	policy = Policy{MaxLifetime: 90 * 24 * time.Hour, StaleAfter: 2 * time.Hour}
	week   = int32(7 * 24 * 3600)
)

func key(t testing.TB, c elliptic.Curve) crypto.Signer {
	t.Helper()
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// good is the request of node a's agent for the first certificate, by a bootstrap token.
func good(t testing.TB) *certificates.CertificateSigningRequest {
	t.Helper()
	request, err := csr.Build("a", key(t, elliptic.P256()), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	o := &certificates.CertificateSigningRequest{
		ObjectMeta: meta.ObjectMeta{CreationTimestamp: meta.NewTime(now.Add(-time.Minute))},
		Spec: certificates.CertificateSigningRequestSpec{
			Request: request, SignerName: csr.Signer, ExpirationSeconds: &week,
			Usages:   []certificates.KeyUsage{certificates.UsageDigitalSignature, certificates.UsageClientAuth},
			Username: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers", csr.BootstrapGroup, "system:authenticated"},
		},
	}
	rename(t, o)
	return o
}

// rename gives the object the name of its content.
func rename(t testing.TB, o *certificates.CertificateSigningRequest) {
	t.Helper()
	r, err := csr.Check(o.Spec.Request)
	if err != nil {
		t.Fatal(err)
	}
	var usages []string
	for _, u := range o.Spec.Usages {
		usages = append(usages, string(u))
	}
	o.Name = csr.Name(r, o.Spec.SignerName, usages, *o.Spec.ExpirationSeconds)
}

func renewal(o *certificates.CertificateSigningRequest) {
	o.Spec.Username, o.Spec.Groups = csr.User("a"), []string{csr.Group, "system:authenticated"}
}

func bound(o *certificates.CertificateSigningRequest) {
	o.Spec.Groups = append(o.Spec.Groups, NodeGroup("a"))
}

func by(user string, groups ...string) func(*certificates.CertificateSigningRequest) {
	return func(o *certificates.CertificateSigningRequest) { o.Spec.Username, o.Spec.Groups = user, groups }
}

// asking replaces the PKCS#10 by any other.
func asking(t testing.TB, template x509.CertificateRequest, k crypto.Signer) func(*certificates.CertificateSigningRequest) {
	return func(o *certificates.CertificateSigningRequest) {
		der, err := x509.CreateCertificateRequest(rand.Reader, &template, k)
		if err != nil {
			t.Fatal(err)
		}
		o.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
}

func subject(cn string, o ...string) x509.CertificateRequest {
	return x509.CertificateRequest{Subject: pkix.Name{CommonName: cn, Organization: o}}
}

// decide is Read and Judge in one, for facts that are known beforehand.
func decide(o *certificates.CertificateSigningRequest, f Facts, p Policy, now time.Time) Verdict {
	c, v := Read(o, p, now)
	if c == nil {
		return v
	}
	return Judge(*c, f, p, now)
}

// check runs one case: what differs from a good request about a known node, and what comes of it.
func check(t *testing.T, change func(*certificates.CertificateSigningRequest), f Facts, word Word, c Check) Verdict {
	t.Helper()
	o := good(t)
	if change != nil {
		change(o)
	}
	v := decide(o, f, policy, now)
	if v.Word != word || v.Check != c {
		t.Errorf("got %v (%s), want %v by %q", v.Word, v.Message(), word, c)
	}
	if strings.ContainsFunc(v.Message(), func(r rune) bool { return r < ' ' }) || len(v.Message()) > 1000 || v.Fact == "" {
		t.Errorf("not one line: %q", v.Message())
	}
	return v
}

var known = Facts{Access: true, Known: true}

func TestGoodRequestsAreApproved(t *testing.T) {
	for sentence, change := range map[string]func(*certificates.CertificateSigningRequest){
		"a bootstrap token":          nil,
		"a token bound to this node": bound,
		"a renewal":                  renewal,
		"this node's kubelet":        by("system:node:a", "system:nodes"),
		"a ServiceAccount":           by("system:serviceaccount:x:y", "system:serviceaccounts"),
		"a person":                   by("jane"),
		"usages in the other order":  func(o *certificates.CertificateSigningRequest) { slices.Reverse(o.Spec.Usages) },
		"the longest lifetime": func(o *certificates.CertificateSigningRequest) {
			long := int32(90 * 24 * 3600)
			o.Spec.ExpirationSeconds = &long
			rename(t, o)
		},
		"just under a day old": func(o *certificates.CertificateSigningRequest) {
			o.CreationTimestamp = meta.NewTime(now.Add(-24*time.Hour + time.Second))
		},
		"made by a clock that's fast": func(o *certificates.CertificateSigningRequest) {
			o.CreationTimestamp = meta.NewTime(now.Add(time.Hour))
		},
	} {
		t.Run(sentence, func(t *testing.T) { check(t, change, known, Approve, "") })
	}
}

func TestWhatIsNotOursIsIgnored(t *testing.T) {
	p256 := key(t, elliptic.P256())
	condition := func(c certificates.RequestConditionType) func(*certificates.CertificateSigningRequest) {
		return func(o *certificates.CertificateSigningRequest) {
			o.Status.Conditions = []certificates.CertificateSigningRequestCondition{{Type: c}}
		}
	}
	for sentence, change := range map[string]func(*certificates.CertificateSigningRequest){
		"another signer": func(o *certificates.CertificateSigningRequest) {
			o.Spec.SignerName = "kubernetes.io/kube-apiserver-client-kubelet"
		},
		"a kubelet":        asking(t, subject("system:node:a", "system:nodes"), p256),
		"a person":         asking(t, subject("jane", "devs"), p256),
		"a similar prefix": asking(t, subject("x-node-cert-agent:node:a", "x"), p256),
		"no PEM":           func(o *certificates.CertificateSigningRequest) { o.Spec.Request = []byte("x") },
		"no PKCS#10": func(o *certificates.CertificateSigningRequest) {
			o.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST"})
		},
		"nothing":            func(o *certificates.CertificateSigningRequest) { o.Spec.Request = nil },
		"approved":           condition(certificates.CertificateApproved),
		"denied":             condition(certificates.CertificateDenied),
		"failed":             condition(certificates.CertificateFailed),
		"issued":             func(o *certificates.CertificateSigningRequest) { o.Status.Certificate = []byte("x") },
		"an object of zeros": func(o *certificates.CertificateSigningRequest) { *o = certificates.CertificateSigningRequest{} },
	} {
		t.Run(sentence, func(t *testing.T) { check(t, change, known, Ignore, Ours) })
	}
}

func TestCertainViolationsAreDenied(t *testing.T) {
	p256, us := key(t, elliptic.P256()), csr.User("a")
	named := subject(us, csr.Group)
	named.DNSNames = []string{"kubernetes"}
	lifetime := func(s *int32) func(*certificates.CertificateSigningRequest) {
		return func(o *certificates.CertificateSigningRequest) { o.Spec.ExpirationSeconds = s }
	}
	usages := func(u ...certificates.KeyUsage) func(*certificates.CertificateSigningRequest) {
		return func(o *certificates.CertificateSigningRequest) { o.Spec.Usages = u }
	}
	long, none, negative := int32(90*24*3600+1), int32(0), int32(-1)
	for sentence, c := range map[string]struct {
		change func(*certificates.CertificateSigningRequest)
		check  Check
	}{
		"system:masters beside our group": {asking(t, subject(us, csr.Group, "system:masters"), p256), Form},
		"our user in another group":       {asking(t, subject(us, "system:masters"), p256), Form},
		"our group for another user":      {asking(t, subject("system:admin", csr.Group), p256), Form},
		"a name that is no node's":        {asking(t, subject(csr.User("A\nB"), csr.Group), p256), Form},
		"an alternative name":             {asking(t, named, p256), Form},
		"another curve":                   {asking(t, subject(us, csr.Group), key(t, elliptic.P384())), Form},
		"server auth":                     {usages("digital signature", "client auth", "server auth"), Usages},
		"a usage twice":                   {usages("digital signature", "client auth", "client auth"), Usages},
		"key encipherment":                {usages("key encipherment", "client auth"), Usages},
		"no usages":                       {usages(), Usages},
		"no lifetime":                     {lifetime(nil), Lifetime},
		"a lifetime of zero":              {lifetime(&none), Lifetime},
		"a lifetime before now":           {lifetime(&negative), Lifetime},
		"too long a lifetime":             {lifetime(&long), Lifetime},
		"a name of its own":               {func(o *certificates.CertificateSigningRequest) { o.Name = "csr-abcde" }, Name},
		"the name of another request":     {func(o *certificates.CertificateSigningRequest) { o.Name = good(t).Name }, Name},
		"an agent for another node":       {by(csr.User("b"), csr.Group), Requester},
		"an agent of a nameless node":     {by(csr.UserPrefix, csr.Group), Requester},
		"a token bound to another node":   {by("system:bootstrap:abcdef", csr.BootstrapGroup, NodeGroup("b")), Requester},
		"another node's kubelet":          {by("system:node:b", "system:nodes"), Requester},
		"a ServiceAccount of another node's": {func(o *certificates.CertificateSigningRequest) {
			by("system:serviceaccount:x:y")(o)
			o.Spec.Extra = map[string]certificates.ExtraValue{"authentication.kubernetes.io/node-name": {"b"}}
		}, Requester},
	} {
		t.Run(sentence, func(t *testing.T) { check(t, c.change, known, Deny, c.check) })
	}
}

func TestWhatMayChangeIsLeftPending(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*certificates.CertificateSigningRequest)
		facts  Facts
		check  Check
	}{
		"a day old": {func(o *certificates.CertificateSigningRequest) {
			o.CreationTimestamp = meta.NewTime(now.Add(-24 * time.Hour))
		}, known, Age},
		"an agent's name without its group": {by(csr.User("a"), "x"), known, Requester},
		"no right to bootstrap":             {nil, Facts{Known: true}, Access},
		"no right to renew":                 {renewal, Facts{Known: true}, Access},
		"no node for a shared token":        {nil, Facts{Access: true}, Inventory},
		"no node for a ServiceAccount":      {by("system:serviceaccount:x:y"), Facts{Access: true}, Inventory},
		"a node that is gone renews":        {renewal, Facts{Access: true}, Inventory},
	} {
		t.Run(sentence, func(t *testing.T) {
			if v := check(t, c.change, c.facts, Leave, c.check); c.check == Access && !strings.Contains(v.Fact, "certificatesigningrequests/nodecert") {
				t.Errorf("does not name the right: %s", v.Fact)
			}
		})
	}
}

func TestACredentialOfItsOwnStandsForTheInventory(t *testing.T) {
	check(t, bound, Facts{Access: true}, Approve, "")
	check(t, by("system:node:a"), Facts{Access: true}, Approve, "")
	check(t, func(o *certificates.CertificateSigningRequest) {
		by("system:serviceaccount:x:y")(o)
		o.Spec.Extra = map[string]certificates.ExtraValue{"authentication.kubernetes.io/node-name": {"a"}}
	}, Facts{Access: true}, Approve, "")
	check(t, renewal, Facts{Access: true, Admitted: now.Add(-time.Hour)}, Approve, "")
	check(t, nil, Facts{Access: true, Admitted: now.Add(-time.Hour)}, Leave, Inventory)
}

func TestALiveIdentityIsNotTakenOverAndThereIsAlwaysAWay(t *testing.T) {
	inUse := func(change func(*Facts)) Facts {
		f := known
		f.Identity = &Identity{Issued: now.Add(-24 * time.Hour), Expires: now.Add(24 * time.Hour), Heartbeat: now.Add(-time.Hour)}
		if change != nil {
			change(&f)
		}
		return f
	}
	v := check(t, nil, inUse(nil), Leave, Live)
	if !v.Again.Equal(now.Add(time.Hour)) || !strings.Contains(v.Fact, AllowAnnotation) {
		t.Errorf("says %q and comes back at %v", v.Fact, v.Again)
	}
	// A token whose age nobody may read is not what helps.
	if !strings.Contains(v.Fact, "the component single-use") {
		t.Errorf("says %q", v.Fact)
	}
	if v := check(t, nil, inUse(func(f *Facts) { f.TokenCreated = now.Add(-time.Minute) }), Leave, Live); !strings.Contains(v.Fact, "a token for this node made after") {
		t.Errorf("says %q", v.Fact)
	}
	check(t, by("jane"), inUse(nil), Leave, Live)
	check(t, bound, inUse(nil), Leave, Live)
	check(t, bound, inUse(func(f *Facts) { f.TokenCreated = now.Add(-25 * time.Hour) }), Leave, Live)
	check(t, nil, inUse(func(f *Facts) { f.Allowed = "another request" }), Leave, Live)
	check(t, nil, inUse(func(f *Facts) { f.TokenCreated = now.Add(-time.Minute) }), Leave, Live) // not bound
	// The very token of the first issue is older than the approval, whatever the node reports.
	check(t, bound, inUse(func(f *Facts) {
		f.Identity.Issued, f.TokenCreated, f.Admitted = now.Add(-80*time.Minute), now.Add(-66*time.Minute), now.Add(-65*time.Minute)
	}), Leave, Live)
	soon := check(t, nil, inUse(func(f *Facts) { f.Identity.Expires = now.Add(time.Minute) }), Leave, Live)
	if !soon.Again.Equal(now.Add(time.Minute)) {
		t.Errorf("comes back at %v, not when the certificate expires", soon.Again)
	}

	o := good(t)
	if v := decide(o, inUse(func(f *Facts) { f.Allowed = o.Name }), policy, now); v.Word != Approve {
		t.Errorf("with the annotation: %s", v.Message())
	}
	if v := decide(o, inUse(func(f *Facts) { f.Last = o.Name }), policy, now); v.Word != Approve {
		t.Errorf("the same request again: %s", v.Message())
	}
	c, _ := Read(o, policy, now)
	if v := Judge(*c, inUse(func(f *Facts) { f.Identity.PublicKey = c.PublicKey }), policy, now); v.Word != Approve {
		t.Errorf("the key in use: %s", v.Message())
	}
	check(t, nil, inUse(func(f *Facts) { f.Identity.Heartbeat = now.Add(-2 * time.Hour) }), Approve, "")
	check(t, nil, inUse(func(f *Facts) { f.Identity.Heartbeat = time.Time{} }), Approve, "")
	check(t, nil, inUse(func(f *Facts) { f.Identity.Expires = now }), Approve, "")
	check(t, bound, inUse(func(f *Facts) { f.TokenCreated = now.Add(-time.Minute) }), Approve, "")
	check(t, by("system:node:a"), inUse(nil), Approve, "")
	check(t, renewal, inUse(nil), Approve, "")
}

func TestOnlyTheNewestOfSeveralRequestsIsApproved(t *testing.T) {
	f := known
	f.Newer = "node-cert-agent-later"
	for _, change := range []func(*certificates.CertificateSigningRequest){nil, bound, by("jane"), by("system:node:a", "system:nodes")} {
		if v := check(t, change, f, Leave, Newest); !strings.Contains(v.Fact, f.Newer) {
			t.Errorf("does not name the newer: %s", v.Fact)
		}
	}
	check(t, renewal, f, Approve, "")
}

func TestOfTwoTokensThatAskForANewNodeOneIsGranted(t *testing.T) {
	granted := func(ago time.Duration, change func(*Facts)) Facts {
		f := known
		f.Admitted, f.Last = now.Add(-ago), "the first"
		if change != nil {
			change(&f)
		}
		return f
	}
	v := check(t, nil, granted(time.Minute, nil), Leave, Live)
	if !v.Again.Equal(now.Add(9*time.Minute)) || !strings.Contains(v.Fact, "granted") {
		t.Errorf("says %q and comes back at %v", v.Fact, v.Again)
	}
	check(t, bound, granted(time.Minute, func(f *Facts) { f.TokenCreated = now.Add(-time.Hour) }), Leave, Live)
	// The old identity is stale, and the new one has not spoken.
	stale := func(f *Facts) { f.Identity = &Identity{Heartbeat: now.Add(-3 * time.Hour)} }
	check(t, nil, granted(time.Minute, stale), Leave, Live)

	check(t, nil, granted(10*time.Minute, nil), Approve, "")
	check(t, nil, granted(10*time.Minute, stale), Approve, "")
	check(t, bound, granted(time.Minute, func(f *Facts) { f.TokenCreated = now.Add(-time.Second) }), Approve, "")
	check(t, by("system:node:a"), granted(time.Minute, nil), Approve, "")
	check(t, renewal, granted(time.Minute, nil), Approve, "")
	// It has spoken, and what it said is over.
	check(t, nil, granted(time.Minute, func(f *Facts) { f.Identity = &Identity{Heartbeat: now, Expires: now} }), Approve, "")
	o := good(t)
	if v := decide(o, granted(time.Minute, func(f *Facts) { f.Last = o.Name }), policy, now); v.Word != Approve {
		t.Errorf("the same request again: %s", v.Message())
	}
}

func TestADamagedRequestIsNeverApprovedAndNeverHarms(t *testing.T) {
	o := good(t)
	block, _ := pem.Decode(o.Spec.Request)
	for i, b := range block.Bytes {
		for _, der := range [][]byte{block.Bytes[:i], slices.Concat(block.Bytes[:i], []byte{^b}, block.Bytes[i+1:])} {
			damaged := o.DeepCopy()
			damaged.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
			if v := decide(damaged, known, policy, now); v.Word != Ignore && v.Word != Deny {
				t.Errorf("damaged at byte %d: %v (%s)", i, v.Word, v.Message())
			}
		}
	}
}

// FuzzDecide holds that no request of a stranger harms the approver, and that whatever is approved is
// one node's identity and nothing else.
func FuzzDecide(f *testing.F) {
	o := good(f)
	block, _ := pem.Decode(o.Spec.Request)
	f.Add(block.Bytes, o.Name, o.Spec.Username, csr.BootstrapGroup, "client auth", week)
	renewal(o)
	f.Add(block.Bytes, o.Name, o.Spec.Username, csr.Group, "server auth", int32(-1))
	f.Fuzz(func(t *testing.T, der []byte, name, user, group, usage string, seconds int32) {
		o := &certificates.CertificateSigningRequest{
			ObjectMeta: meta.ObjectMeta{Name: name, CreationTimestamp: meta.NewTime(now)},
			Spec: certificates.CertificateSigningRequestSpec{
				Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
				SignerName: csr.Signer, Username: user, Groups: []string{group}, ExpirationSeconds: &seconds,
				Usages: []certificates.KeyUsage{"digital signature", certificates.KeyUsage(usage)},
				Extra:  map[string]certificates.ExtraValue{nodeNameExtra: {group}},
			},
		}
		v := decide(o, known, policy, now)
		if strings.ContainsFunc(v.Message(), func(r rune) bool { return r < ' ' || r == 0x7f }) || len(v.Message()) > 2000 {
			t.Errorf("not one line: %q", v.Message())
		}
		if v.Word != Approve {
			return
		}
		r, err := x509.ParseCertificateRequest(der)
		if err != nil || !strings.HasPrefix(r.Subject.CommonName, csr.UserPrefix) || len(r.Subject.Names) != 2 ||
			!slices.Equal(r.Subject.Organization, []string{csr.Group}) || len(r.DNSNames)+len(r.EmailAddresses)+len(r.IPAddresses)+len(r.URIs) > 0 {
			t.Errorf("approved %v", r)
		}
	})
}
