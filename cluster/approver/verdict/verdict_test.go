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
	core "k8s.io/api/core/v1"
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
			Username: "system:bootstrap:abcdef", Groups: []string{"system:bootstrappers", csr.BootstrapGroup,
				"system:authenticated"},
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
func asking(t testing.TB, template x509.CertificateRequest,
	k crypto.Signer) func(*certificates.CertificateSigningRequest) {
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

// stranger makes a request of somebody who is in none of our groups, under a name of its own.
func stranger(
	change func(*certificates.CertificateSigningRequest),
) func(*certificates.CertificateSigningRequest) {
	return func(o *certificates.CertificateSigningRequest) {
		change(o)
		by("jane", "system:authenticated")(o)
		o.Name = "csr-abcde"
	}
}

// requesting replaces the request by any bytes.
func requesting(b []byte) func(*certificates.CertificateSigningRequest) {
	return func(o *certificates.CertificateSigningRequest) { o.Spec.Request = b }
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
func check(t *testing.T, change func(*certificates.CertificateSigningRequest), f Facts, want Action, c Check) Verdict {
	t.Helper()
	o := good(t)
	if change != nil {
		change(o)
	}
	v := decide(o, f, policy, now)
	if v.Action != want || v.Check != c {
		t.Errorf("got %v (%s), want %v by %q", v.Action, v.Message(), want, c)
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
		"a kubelet":        stranger(asking(t, subject("system:node:a", "system:nodes"), p256)),
		"a person":         stranger(asking(t, subject("jane", "devs"), p256)),
		"a similar prefix": stranger(asking(t, subject("x-node-cert-agent:node:a", "x"), p256)),
		"no PEM":           stranger(requesting([]byte("x"))),
		"no PKCS#10":       stranger(requesting(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST"}))),
		"nothing":          stranger(requesting(nil)),
		"a name that is nearly ours": func(o *certificates.CertificateSigningRequest) {
			stranger(asking(t, subject("jane", "devs"), p256))(o)
			o.Name = csr.NamePrefix + strings.Repeat("w", 32)
		},
		"approved": condition(certificates.CertificateApproved),
		"denied":   condition(certificates.CertificateDenied),
		"failed":   condition(certificates.CertificateFailed),
		"issued":   func(o *certificates.CertificateSigningRequest) { o.Status.Certificate = []byte("x") },
		"an object of zeros": func(o *certificates.CertificateSigningRequest) {
			*o = certificates.CertificateSigningRequest{}
		},
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

// TestAForeignSubjectUnderOurNameOrByOurGroupsIsDenied: nobody should be asked to approve it by hand, and it can
// never become right.
func TestAForeignSubjectUnderOurNameOrByOurGroupsIsDenied(t *testing.T) {
	p256 := key(t, elliptic.P256())
	manager := asking(t, subject("system:kube-controller-manager"), p256)
	named := func(user string, groups ...string) func(*certificates.CertificateSigningRequest) {
		return func(o *certificates.CertificateSigningRequest) {
			manager(o)
			by(user, groups...)(o)
		}
	}
	renamed := func(change func(*certificates.CertificateSigningRequest)) func(*certificates.CertificateSigningRequest) {
		return func(o *certificates.CertificateSigningRequest) {
			change(o)
			o.Name = "csr-abcde"
		}
	}
	for sentence, change := range map[string]func(*certificates.CertificateSigningRequest){
		"under our name by a person":          named("jane"),
		"under our name by an agent":          named(csr.User("a"), csr.Group),
		"under another by an agent":           renamed(named(csr.User("a"), csr.Group)),
		"under another by a bootstrap token":  renamed(named("system:bootstrap:abcdef", csr.BootstrapGroup)),
		"by a token that is bound to a node":  renamed(named("system:bootstrap:abcdef", NodeGroup("a"))),
		"no PEM under our name":               requesting([]byte("x")),
		"no PKCS#10 under our name":           requesting(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST"})),
		"nothing under our name":              requesting(nil),
		"more than any request of ours holds": requesting(make([]byte, 1<<20)),
	} {
		t.Run(sentence, func(t *testing.T) { check(t, change, known, Deny, Form) })
	}
	if v := check(t, manager, known, Deny, Form); !strings.Contains(v.Fact, "system:kube-controller-manager") {
		t.Errorf("does not say who is asked for: %s", v.Fact)
	}
	decided := func(o *certificates.CertificateSigningRequest) {
		manager(o)
		o.Status.Conditions = []certificates.CertificateSigningRequestCondition{{Type: certificates.CertificateApproved}}
	}
	check(t, decided, known, Ignore, Ours)
	check(t, func(o *certificates.CertificateSigningRequest) {
		manager(o)
		o.Spec.SignerName = "example.com/signer"
	}, known, Ignore, Ours)
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
		"a node that left the inventory renews": {renewal,
			Facts{Access: true, Admitted: now.Add(-48 * time.Hour), KnownSince: now.Add(-47 * time.Hour)}, Inventory},
		"the kubelet of a node that left the inventory": {by("system:node:a", "system:nodes"),
			Facts{Access: true, Admitted: now.Add(-48 * time.Hour), KnownSince: now.Add(-47 * time.Hour)}, Inventory},
		"a token that is withdrawn": {nil, Facts{Access: true, Known: true, Token: TokenFacts{Withdrawn: "is gone"}},
			Credential},
		"a bound token that is withdrawn": {bound, Facts{Access: true, Token: TokenFacts{Withdrawn: "is gone"}}, Credential},
		"a token for single use that another node has": {nil,
			Facts{Access: true, Known: true, Token: TokenFacts{SpentOn: "b"}}, Credential},
	} {
		t.Run(sentence, func(t *testing.T) {
			if v := check(t, c.change, c.facts, Pending, c.check); c.check == Access &&
				!strings.Contains(v.Fact, "certificatesigningrequests/nodecert") {
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
	check(t, nil, Facts{Access: true, Admitted: now.Add(-time.Hour)}, Pending, Inventory)
}

func TestALiveIdentityIsNotTakenOverAndThereIsAlwaysAWay(t *testing.T) {
	inUse := func(change func(*Facts)) Facts {
		f := known
		f.Identity = &Identity{Issued: now.Add(-24 * time.Hour), Expires: now.Add(24 * time.Hour),
			Heartbeat: now.Add(-time.Hour)}
		if change != nil {
			change(&f)
		}
		return f
	}
	v := check(t, nil, inUse(nil), Pending, Live)
	if !v.Again.Equal(now.Add(time.Hour)) || !strings.Contains(v.Fact, AllowAnnotation) {
		t.Errorf("says %q and comes back at %v", v.Fact, v.Again)
	}
	// A token whose age nobody may read is not what helps.
	if !strings.Contains(v.Fact, "the component single-use") {
		t.Errorf("says %q", v.Fact)
	}
	if v := check(t, nil, inUse(func(f *Facts) { f.Token.Created = now.Add(-time.Minute) }), Pending,
		Live); !strings.Contains(v.Fact, "a token for this node made after") {
		t.Errorf("says %q", v.Fact)
	}
	check(t, by("jane"), inUse(nil), Pending, Live)
	check(t, bound, inUse(nil), Pending, Live)
	check(t, bound, inUse(func(f *Facts) { f.Token.Created = now.Add(-25 * time.Hour) }), Pending, Live)
	check(t, nil, inUse(func(f *Facts) { f.Allowed = "another request" }), Pending, Live)
	check(t, nil, inUse(func(f *Facts) { f.Token.Created = now.Add(-time.Minute) }), Pending, Live) // not bound
	// The very token of the first issue is older than the approval, whatever the node reports.
	check(t, bound, inUse(func(f *Facts) {
		f.Identity.Issued, f.Token.Created, f.Admitted = now.Add(-80*time.Minute), now.Add(-66*time.Minute),
			now.Add(-65*time.Minute)
	}), Pending, Live)
	soon := check(t, nil, inUse(func(f *Facts) { f.Identity.Expires = now.Add(time.Minute) }), Pending, Live)
	if !soon.Again.Equal(now.Add(time.Minute)) {
		t.Errorf("comes back at %v, not when the certificate expires", soon.Again)
	}

	o := good(t)
	if v := decide(o, inUse(func(f *Facts) { f.Allowed = o.Name }), policy, now); v.Action != Approve {
		t.Errorf("with the annotation: %s", v.Message())
	}
	if v := decide(o, inUse(func(f *Facts) { f.Last = o.Name }), policy, now); v.Action != Approve {
		t.Errorf("the same request again: %s", v.Message())
	}
	c, _ := Read(o, policy, now)
	if v := Judge(*c, inUse(func(f *Facts) { f.Identity.PublicKey = c.PublicKey }), policy, now); v.Action != Approve {
		t.Errorf("the key in use: %s", v.Message())
	}
	check(t, nil, inUse(func(f *Facts) { f.Identity.Heartbeat = now.Add(-2 * time.Hour) }), Approve, "")
	check(t, nil, inUse(func(f *Facts) { f.Identity.Heartbeat = time.Time{} }), Approve, "")
	check(t, nil, inUse(func(f *Facts) { f.Identity.Expires = now }), Approve, "")
	check(t, bound, inUse(func(f *Facts) { f.Token.Created = now.Add(-time.Minute) }), Approve, "")
	check(t, by("system:node:a"), inUse(nil), Approve, "")
	check(t, renewal, inUse(nil), Approve, "")
}

// TestWhatANodeSaysOfItsCertificateDoesNotKeepANewTokenOut: an agent that was taken over reports that its
// certificate was issued in years to come.
func TestWhatANodeSaysOfItsCertificateDoesNotKeepANewTokenOut(t *testing.T) {
	f := known
	f.Identity = &Identity{Issued: now.Add(5 * 365 * 24 * time.Hour), Expires: now.Add(10 * 365 * 24 * time.Hour),
		Heartbeat: now.Add(-time.Hour)}
	f.Token.Created = now.Add(-time.Minute)
	check(t, bound, f, Approve, "")
}

func TestANodeThatLeftAndIsKnownAgainRenews(t *testing.T) {
	f := Facts{Access: true, Known: true, Admitted: now.Add(-48 * time.Hour), KnownSince: now.Add(-47 * time.Hour)}
	check(t, renewal, f, Approve, "")
}

func TestOnlyTheNewestOfSeveralRequestsIsApproved(t *testing.T) {
	f := known
	f.Newer = "node-cert-agent-later"
	for _, change := range []func(*certificates.CertificateSigningRequest){
		nil, bound, by("jane"), by("system:node:a", "system:nodes")} {
		if v := check(t, change, f, Pending, Newest); !strings.Contains(v.Fact, f.Newer) {
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
	v := check(t, nil, granted(time.Minute, nil), Pending, Live)
	if !v.Again.Equal(now.Add(9*time.Minute)) || !strings.Contains(v.Fact, "granted") {
		t.Errorf("says %q and comes back at %v", v.Fact, v.Again)
	}
	check(t, bound, granted(time.Minute, func(f *Facts) { f.Token.Created = now.Add(-time.Hour) }), Pending, Live)
	// The old identity is stale, and the new one has not spoken.
	stale := func(f *Facts) { f.Identity = &Identity{Heartbeat: now.Add(-3 * time.Hour)} }
	check(t, nil, granted(time.Minute, stale), Pending, Live)

	check(t, nil, granted(10*time.Minute, nil), Approve, "")
	check(t, nil, granted(10*time.Minute, stale), Approve, "")
	check(t, bound, granted(time.Minute, func(f *Facts) { f.Token.Created = now.Add(-time.Second) }), Approve, "")
	check(t, by("system:node:a"), granted(time.Minute, nil), Approve, "")
	check(t, renewal, granted(time.Minute, nil), Approve, "")
	// It has spoken, and what it said is over.
	check(t, nil, granted(time.Minute, func(f *Facts) { f.Identity = &Identity{Heartbeat: now, Expires: now} }), Approve,
		"")
	o := good(t)
	if v := decide(o, granted(time.Minute, func(f *Facts) { f.Last = o.Name }), policy, now); v.Action != Approve {
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
			if v := decide(damaged, known, policy, now); v.Action != Deny {
				t.Errorf("damaged at byte %d: %v (%s)", i, v.Action, v.Message())
			}
		}
	}
}

// TestWhatAnAttackerGets is what each of those whom SECURITY.md names gets out of a request, what is left to
// them included.
func TestWhatAnAttackerGets(t *testing.T) {
	p256 := key(t, elliptic.P256())
	day := 24 * time.Hour
	agentB := by(csr.User("b"), csr.Group)
	inUse := Facts{Access: true, Known: true, Admitted: now.Add(-2 * day), Identity: &Identity{
		Issued: now.Add(-2 * day), Expires: now.Add(5 * day), Heartbeat: now.Add(-30 * time.Minute)}}
	with := func(change func(*Facts)) Facts {
		f := inUse
		i := *inUse.Identity
		f.Identity = &i
		change(&f)
		return f
	}
	for sentence, c := range map[string]struct {
		change func(*certificates.CertificateSigningRequest)
		facts  Facts
		action Action
		check  Check
	}{
		// The agent of node b was taken over. It keeps its own identity, and gets no other.
		"b's agent asks for a": {agentB, known, Deny, Requester},
		"b's agent asks for a controller": {func(o *certificates.CertificateSigningRequest) {
			asking(t, subject("system:kube-controller-manager"), p256)(o)
			agentB(o)
		}, known, Deny, Form},
		"an agent in no group of ours":   {by(csr.User("a")), known, Pending, Requester},
		"an agent whose right was taken": {renewal, Facts{Known: true}, Pending, Access},
		"an agent renews":                {renewal, inUse, Approve, ""},
		"an agent whose node was deleted": {renewal,
			with(func(f *Facts) { f.Known = false; f.KnownSince = now.Add(-day) }), Pending, Inventory},
		"an agent whose node is there again": {renewal, with(func(f *Facts) { f.KnownSince = now.Add(-day) }), Approve, ""},
		"an agent whose node never joined":   {renewal, with(func(f *Facts) { f.Known = false }), Approve, ""},
		// A stranger has a token for any node.
		"a token for a node in use": {nil, inUse, Pending, Live},
		"a token for a node just admitted": {nil,
			with(func(f *Facts) { f.Identity = nil; f.Admitted = now.Add(-time.Minute) }), Pending, Live},
		"a token for a node that nobody knows": {nil, Facts{Access: true}, Pending, Inventory},
		"a token for a node that left": {nil, with(func(f *Facts) { f.Known = false; f.KnownSince = now.Add(-day) }),
			Pending, Inventory},
		"a token without the right": {nil, Facts{Known: true}, Pending, Access},
		"a revoked token": {nil, Facts{Access: true, Known: true, Token: TokenFacts{Withdrawn: "is gone"}},
			Pending, Credential},
		"a single-use token that has served": {nil, Facts{Access: true, Known: true, Token: TokenFacts{SpentOn: "b"}}, Pending,
			Credential},
		"a token bound to another node": {by("system:bootstrap:abcdef", csr.BootstrapGroup, NodeGroup("b")),
			known, Deny, Requester},
		"a token for a node that fell silent": {nil, with(func(f *Facts) { f.Identity.Heartbeat = now.Add(-3 * time.Hour) }),
			Approve, ""},
		"a token for a node without identity": {nil, known, Approve, ""},
		"a bound token older than the identity": {bound,
			with(func(f *Facts) { f.Token.Created = now.Add(-3 * day) }), Pending, Live},
		// What a node says of its own certificate, or a clock that is wrong, counts against itself at most.
		"a node that says it lives for ever and is silent": {nil, with(func(f *Facts) {
			f.Identity.Expires, f.Identity.Heartbeat = now.Add(3650*day), now.Add(-3*time.Hour)
		}), Approve, ""},
		"a node that says its certificate is over": {nil,
			with(func(f *Facts) { f.Identity.Expires = now.Add(-day) }), Approve, ""},
		"a node that says it was issued tomorrow, and a new token": {bound, with(func(f *Facts) {
			f.Identity.Issued, f.Token.Created = now.Add(day), now.Add(-time.Minute)
		}), Approve, ""},
	} {
		t.Run(sentence, func(t *testing.T) { check(t, c.change, c.facts, c.action, c.check) })
	}
}

var secret = core.Secret{
	ObjectMeta: meta.ObjectMeta{Name: "bootstrap-token-abcdef", Labels: map[string]string{SingleUseLabel: "true"},
		CreationTimestamp: meta.NewTime(now.Add(-time.Hour))},
	Type: core.SecretTypeBootstrapToken,
	Data: map[string][]byte{"token-id": []byte("abcdef"), "usage-bootstrap-authentication": []byte("true"),
		"expiration":        []byte("2026-11-21T13:00:00Z"),
		"auth-extra-groups": []byte("system:bootstrappers:x," + csr.BootstrapGroup)},
}

func TestATokenThatIsNoLongerGoodIsWithdrawn(t *testing.T) {
	data := func(key, value string) func(*core.Secret) {
		return func(s *core.Secret) { s.Data[key] = []byte(value) }
	}
	for sentence, c := range map[string]struct {
		change func(*core.Secret)
		good   bool
	}{
		"as it was made":           {func(*core.Secret) {}, true},
		"without an end":           {func(s *core.Secret) { delete(s.Data, "expiration") }, true},
		"expired":                  {data("expiration", "2026-11-21T12:00:00Z"), false},
		"an end nobody reads":      {data("expiration", "tomorrow"), false},
		"not for authenticating":   {data("usage-bootstrap-authentication", "false"), false},
		"without that usage":       {func(s *core.Secret) { delete(s.Data, "usage-bootstrap-authentication") }, false},
		"of another id":            {data("token-id", "abcdeg"), false},
		"out of our group":         {data("auth-extra-groups", "system:bootstrappers:x"), false},
		"of another type":          {func(s *core.Secret) { s.Type = core.SecretTypeOpaque }, false},
		"being deleted":            {func(s *core.Secret) { s.DeletionTimestamp = &meta.Time{Time: now} }, false},
		"made anew under its name": {func(s *core.Secret) { s.CreationTimestamp = meta.NewTime(now.Add(time.Hour)) }, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			claim, v := Read(good(t), policy, now)
			if claim == nil {
				t.Fatal(v)
			}
			s := secret.DeepCopy()
			c.change(s)
			if got := ReadToken(s, *claim, now); (got.Withdrawn == "") != c.good {
				t.Errorf("withdrawn: %q", got.Withdrawn)
			}
		})
	}
	claim, _ := Read(good(t), policy, now)
	if ReadToken(nil, *claim, now).Withdrawn == "" {
		t.Error("a token that is gone is good")
	}
	o := good(t)
	bound(o)
	claim, _ = Read(o, policy, now)
	if ReadToken(&secret, *claim, now).Withdrawn == "" {
		t.Error("a token that is no longer bound to the node is good")
	}
}

func TestATokenForSingleUseIsSpentOnOneNode(t *testing.T) {
	noted := func(node string, n Note) []Note { n.Node = node; return []Note{{Node: "z", Secret: "another"}, n} }
	later := Note{Secret: secret.Name, Approved: now.Add(-time.Minute)}
	for sentence, c := range map[string]struct {
		notes []Note
		want  string
	}{
		"on no node":                  {nil, ""},
		"on this node":                {noted("a", later), ""},
		"on another":                  {noted("b", later), "b"},
		"another token":               {noted("b", Note{Secret: "bootstrap-token-x", Approved: now}), ""},
		"before this one was made":    {noted("b", Note{Secret: secret.Name, Approved: now.Add(-2 * time.Hour)}), ""},
		"in the second it was made":   {noted("b", Note{Secret: secret.Name, Approved: now.Add(-time.Hour)}), "b"},
		"at a time that nobody reads": {noted("b", Note{Secret: secret.Name}), "b"},
	} {
		if got := SpentOn(&secret, "a", slices.Values(c.notes)); got != c.want {
			t.Errorf("%s: %q, want %q", sentence, got, c.want)
		}
	}
	shared := secret.DeepCopy()
	shared.Labels = nil
	if got := SpentOn(shared, "a", slices.Values(noted("b", later))); got != "" {
		t.Errorf("a token for many uses is spent on %q", got)
	}
}

// FuzzJudge holds, of any facts, what no approval may go without, and that a claim which fails at its best by
// Cheap fails by all that is so.
func FuzzJudge(f *testing.F) {
	for class := range 5 {
		f.Add(byte(class), true, true, false, int64(-3600), int64(-7200), int64(86400), int64(0), int64(-60), "", "", "")
		f.Add(byte(class), true, false, true, int64(-36000), int64(0), int64(0), int64(-50), int64(0), "gone", "b", "newer")
	}
	// A token that is younger than now, by another server's clock.
	f.Add(byte(Token), true, true, true, int64(0), int64(22), int64(0), int64(0), int64(23), "", "", "")
	f.Fuzz(func(t *testing.T, class byte, access, isKnown, isBound bool,
		heartbeat, admitted, expires, knownSince, created int64, withdrawn, spentOn, newer string) {
		at := func(seconds int64) time.Time {
			if seconds == 0 {
				return time.Time{}
			}
			return now.Add(time.Duration(seconds%1e8) * time.Second)
		}
		c := Claim{Request: "r", Node: "a", User: "u", Class: Class(class % 5), Bound: isBound, PublicKey: "k", Made: now}
		facts := Facts{Access: access, Known: isKnown, Admitted: at(admitted), Newer: newer, KnownSince: at(knownSince),
			Token: TokenFacts{Created: at(created), Withdrawn: withdrawn, SpentOn: spentOn}}
		if heartbeat != 0 {
			facts.Identity = &Identity{Issued: at(admitted), Expires: at(expires), Heartbeat: at(heartbeat)}
		}
		v := Judge(c, facts, policy, now)
		if cheap := Judge(c, Cheap(facts), policy, now); cheap.Action != Approve && v.Action == Approve {
			t.Errorf("left for %s without a look, and is approved with one", cheap.Message())
		}
		if v.Action != Approve {
			return
		}
		live := facts.Identity != nil && now.Before(facts.Identity.Heartbeat.Add(policy.StaleAfter)) &&
			(facts.Identity.Expires.IsZero() || now.Before(facts.Identity.Expires))
		for sentence, broken := range map[string]bool{
			"without the right":      !access,
			"by a withdrawn token":   c.Class == Token && withdrawn != "",
			"by a spent token":       c.Class == Token && spentOn != "",
			"beside a newer request": c.Class != Agent && newer != "",
			"for nobody knows whom":  !isKnown && !isBound && (c.Class != Agent || facts.Admitted.IsZero()),
			"for a node that left":   !isKnown && (c.Class == Agent || c.Class == Kubelet) && !facts.KnownSince.IsZero(),
			"over a live identity":   live && !isBound && (c.Class == Token || c.Class == ServiceAccount || c.Class == Other),
		} {
			if broken {
				t.Errorf("approved %s: %+v", sentence, facts)
			}
		}
	})
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
		mine := csr.Named(name) || group == csr.Group || group == csr.BootstrapGroup ||
			strings.HasPrefix(group, csr.BootstrapGroup+":")
		if v.Action == Deny && !mine && !claimsUs(o.Spec.Request) {
			t.Errorf("denied a stranger's: %s", v.Message())
		}
		if v.Action == Ignore && mine {
			t.Error("ignored what looks like ours")
		}
		if v.Action != Approve {
			return
		}
		r, err := x509.ParseCertificateRequest(der)
		if err != nil || !strings.HasPrefix(r.Subject.CommonName, csr.UserPrefix) || len(r.Subject.Names) != 2 ||
			!slices.Equal(r.Subject.Organization, []string{csr.Group}) ||
			len(r.DNSNames)+len(r.EmailAddresses)+len(r.IPAddresses)+len(r.URIs) > 0 {
			t.Errorf("approved %v", r)
		}
	})
}
