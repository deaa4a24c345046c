// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// brief is a desired state as readable lines: what is asked for, what is listed, what is refused.
func brief(d plan.Desired) string {
	var out []string
	for _, e := range d.Entries {
		l := fmt.Sprintf("%s certs=%d", e.Key, len(e.Certs))
		if len(e.Warnings) > 0 {
			l += " warn=" + strings.Join(e.Warnings, "+")
		}
		out = append(out, l)
	}
	for _, id := range slices.Sorted(maps.Keys(d.Listed)) {
		out = append(out, "listed "+string(id))
	}
	for _, r := range d.Refused {
		out = append(out, "refuse "+r.Key.String()+": "+r.Reason)
	}
	return strings.Join(out, "\n")
}

// project decodes what an API server would send for the fields, and projects it.
func project(t *testing.T, f fields, table []plan.FileSpec) plan.Desired {
	t.Helper()
	o, err := DecodeObject(bytes.NewReader(object(t, f)))
	if err != nil {
		t.Fatal(err)
	}
	return new(Projector).Project(o, table, time.Now())
}

func entry(file string, data any) fields { return fields{"file": file, "data": data} }

func TestBundles(t *testing.T) {
	a, b := certificate(t, "a"), certificate(t, "b")
	both := slices.Concat(a, b)
	expired := certificate(t, "old", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	future := certificate(t, "new", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) })
	leaf := func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature }
	key := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte("x")})
	const field = "rootCAData"
	for sentence, c := range map[string]struct {
		value any
		want  string
	}{
		"a bundle is asked for as published": {both, "rootCAData certs=2"},
		"a missing final newline is added":   {bytes.TrimSuffix(a, []byte("\n")), "rootCAData certs=1"},
		"null asks for nothing":              {nil, ""},
		"empty asks for nothing":             {"", ""},
		"a list is refused":                  {[]int{1}, "refuse rootCAData: is a list, not base64 text"},
		"a number is refused":                {7, "refuse rootCAData: is a number, not base64 text"},
		"an object is refused":               {fields{"a": 1}, "refuse rootCAData: is an object, not base64 text"},
		"a boolean is refused":               {true, "refuse rootCAData: is a boolean, not base64 text"},
		"invalid base64 is refused":          {"%%%%", "refuse rootCAData: is not valid base64"},
		"a private key is refused":           {slices.Concat(a, key), "refuse rootCAData: holds a private key"},
		"a truncated block is refused": {both[:len(both)-40],
			"refuse rootCAData: block 2 does not decode or is cut off"},
		"text alone is refused":       {[]byte("hello"), "refuse rootCAData: holds no certificate"},
		"whitespace alone is refused": {[]byte("\n"), "refuse rootCAData: holds no certificate"},
		"more than 1 MiB is refused while decoding": {make([]byte, 1<<20+1),
			"refuse rootCAData: is larger than 1048576 bytes"},
		"the newline counts towards 1 MiB": {bytes.Repeat([]byte("x"), 1<<20),
			"refuse rootCAData: 1048577 bytes, more than 1048576"},
		"an expired certificate warns": {slices.Concat(a, expired),
			"rootCAData certs=2 warn=an expired certificate"},
		"NotBefore never warns or refuses": {future, "rootCAData certs=1"},
		"text outside blocks warns": {slices.Concat([]byte("# corporate\n"), a),
			"rootCAData certs=1 warn=text outside blocks"},
		"a certificate twice warns": {slices.Concat(a, a), "rootCAData certs=1 warn=a certificate twice"},
		"a self-signed leaf beside a CA only warns": {slices.Concat(a, certificate(t, "l", leaf)),
			"rootCAData certs=2 warn=a certificate that is not a CA"},
	} {
		t.Run(sentence, func(t *testing.T) {
			d := project(t, fields{field: c.value}, specs())
			if got := brief(d); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			for _, e := range d.Entries {
				if !bytes.HasSuffix(e.Data, []byte("-----\n")) || e.Digest != plan.DigestOf(e.Data) {
					t.Errorf("%s: wrong end or digest", e.Key)
				}
			}
		})
	}
}

func TestRegistryLists(t *testing.T) {
	a, b := certificate(t, "a"), certificate(t, "b")
	leaf := certificate(t, "leaf", func(c *x509.Certificate) { c.IsCA, c.KeyUsage = false, x509.KeyUsageDigitalSignature })
	const own, user = "imageRegistryBundleData", "imageRegistryBundleUserData"
	for sentence, c := range map[string]struct {
		spec fields
		want string
	}{
		"every double dot of a name is a colon": {
			fields{own: []any{entry("r.example..5000", a)}},
			"imageRegistryBundleData/r.example:5000 certs=1\nlisted imageRegistryBundleData"},
		"entries are sorted by name, fields keep their order": {
			fields{user: []any{entry("a", a)}, own: []any{entry("z", a), entry("b", a)}},
			"imageRegistryBundleData/b certs=1\nimageRegistryBundleData/z certs=1\nimageRegistryBundleUserData/a " +
				"certs=1\nlisted imageRegistryBundleData\nlisted imageRegistryBundleUserData"},
		"a self-signed leaf is accepted without a word": {
			fields{own: []any{entry("r", leaf)}}, "imageRegistryBundleData/r certs=1\nlisted imageRegistryBundleData"},
		"an empty list lists nothing":   {fields{own: []any{}}, ""},
		"a list that is null is absent": {fields{own: nil}, ""},
		"user data wins": {
			fields{own: []any{entry("r", a)}, user: []any{entry("r", b)}},
			"imageRegistryBundleUserData/r certs=1\nlisted imageRegistryBundleData\nlisted imageRegistryBundleUserData"},
		"the other list does not step in for refused user data": {
			fields{own: []any{entry("r", a)}, user: []any{entry("r", []byte("x"))}},
			"listed imageRegistryBundleData\nlisted imageRegistryBundleUserData\n" +
				"refuse imageRegistryBundleData/r: imageRegistryBundleUserData has the same file /etc/docker/certs.d/r/ca.crt, " +
				"and is refused\n" +
				"refuse imageRegistryBundleUserData/r: holds no certificate"},
		"one name with two contents is refused, whichever comes first": {
			fields{own: []any{entry("r..5000", a), entry("r:5000", b), entry("s", a)}},
			"imageRegistryBundleData/s certs=1\nlisted imageRegistryBundleData\nrefuse imageRegistryBundleData/r:5000: the " +
				"list names this registry 2 times with different content"},
		"one name twice with the same content is one entry": {
			fields{own: []any{entry("r..5000", a), entry("r:5000", a)}},
			"imageRegistryBundleData/r:5000 certs=1\nlisted imageRegistryBundleData"},
		"an invalid entry leaves the others alone": {
			fields{own: []any{entry("r", []byte("x")), entry("s", a)}},
			"imageRegistryBundleData/s certs=1\nlisted imageRegistryBundleData\nrefuse imageRegistryBundleData/r: holds no " +
				"certificate"},
		"an empty entry keeps its last good file": {
			fields{own: []any{entry("r", ""), entry("s", nil)}},
			"listed imageRegistryBundleData\nrefuse imageRegistryBundleData/r: is empty\nrefuse imageRegistryBundleData/s: is " +
				"empty"},
		"while a name cannot be used nothing counts as missing": {
			fields{own: []any{entry("../../etc", a), entry("s", a)}},
			"imageRegistryBundleData/s certs=1\nrefuse imageRegistryBundleData/:/:/etc: registry name \":/:/etc\": port is not " +
				"a number from 1 to 65535"},
		"an entry without a name, the same": {
			fields{own: []any{fields{"data": a}, entry("s", a)}},
			"imageRegistryBundleData/s certs=1\nrefuse imageRegistryBundleData: entry 1 has no file name"},
		"an entry that is no object, the same": {
			fields{own: []any{entry("s", a), 7}},
			"imageRegistryBundleData/s certs=1\nrefuse imageRegistryBundleData: entry 2 is a number, not an object"},
		"a list that is a string is refused whole": {
			fields{own: "x", user: []any{entry("s", a)}},
			"imageRegistryBundleUserData/s certs=1\nlisted imageRegistryBundleUserData\nrefuse imageRegistryBundleData: is a " +
				"string, not a list"},
		"too many entries are refused whole": {
			fields{own: slices.Repeat([]any{entry("s", a)}, MaxEntries+1)},
			"refuse imageRegistryBundleData: has more than 1000 entries"},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := brief(project(t, c.spec, specs())); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestOneCertificateAFile(t *testing.T) {
	table := []plan.FileSpec{{Field: plan.AdditionalTrustBundle, Path: "/usr/local/share/ca-certificates/{sha256}.crt",
		Mode: 0o644}}
	a, b := certificate(t, "a"), certificate(t, "b")
	leaf := issuedLeaf(t)
	d := project(t, fields{"additionalTrustBundle": slices.Concat([]byte("# text\n"), a, b, leaf)}, table)
	if len(d.Entries) != 2 || !d.Listed[plan.AdditionalTrustBundle] || len(d.Refused) != 1 || d.Refused[0].Name == "" {
		t.Fatalf("got\n%s", brief(d))
	}
	var names []string
	for _, e := range d.Entries {
		names = append(names, e.Name)
		if !bytes.Equal(e.Data, a) && !bytes.Equal(e.Data, b) {
			t.Errorf("%s holds more or less than one certificate", e.Name)
		}
		if e.Name != e.Certs[0].Fingerprint.String() {
			t.Errorf("%s is named after another certificate", e.Name)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("not sorted: %v", names)
	}
	broken := project(t, fields{"additionalTrustBundle": slices.Concat(a, b[:100])}, table)
	if got, want := brief(broken), "refuse additionalTrustBundle: block 2 does not decode or is cut off"; got != want {
		t.Errorf("a broken bundle gave\n%s\nwant\n%s", got, want)
	}
}

func TestFieldsThatTheHostLeavesOutAreIgnored(t *testing.T) {
	a := certificate(t, "a")
	spec := fields{"rootCAData": a, "cloudProviderCAData": a, "imageRegistryBundleData": []any{entry("../x", a)}}
	if got, want := brief(project(t, spec, specs()[2:3])), "rootCAData certs=1"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAStrictFieldRefusesWhatOthersWarnAbout(t *testing.T) {
	table := specs()
	table[2].Strict = true
	a := certificate(t, "a")
	got := brief(project(t, fields{"rootCAData": slices.Concat(a, a)}, table))
	if want := "refuse rootCAData: strict: a certificate twice"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUnchangedFieldsAreNotParsedAgain(t *testing.T) {
	var p Projector
	o, err := DecodeObject(bytes.NewReader(large(t)))
	if err != nil {
		t.Fatal(err)
	}
	first := p.Project(o, specs(), time.Now())
	again := p.Project(o, specs(), time.Now().Add(time.Minute))
	if brief(first) != brief(again) {
		t.Errorf("the second look differs:\n%s\n%s", brief(first), brief(again))
	}
	for i := range first.Entries {
		if &first.Entries[i].Certs[0] != &again.Entries[i].Certs[0] {
			t.Errorf("%s was parsed again", first.Entries[i].Key)
		}
	}
}

func TestAFieldThatGetsOtherWritersIsJudgedAgain(t *testing.T) {
	commented := append([]byte("# comment\n"), certificate(t, "a")...)
	o, err := DecodeObject(bytes.NewReader(object(t, fields{"rootCAData": commented})))
	if err != nil {
		t.Fatal(err)
	}
	spec := plan.FileSpec{Field: plan.RootCAData, Path: "/etc/kubernetes/ca.crt"}
	var p Projector
	alone := p.Project(o, []plan.FileSpec{spec}, time.Now())
	beside := p.Project(o, []plan.FileSpec{spec.With([]plan.Writer{plan.MachineConfigDaemon})}, time.Now())
	if len(alone.Entries) != 1 || bytes.Equal(alone.Entries[0].Data, commented) {
		t.Errorf("alone the file is %q", alone.Entries)
	}
	if len(beside.Entries) != 1 || !bytes.Equal(beside.Entries[0].Data, commented) {
		t.Errorf("beside other writers it is %q", beside.Entries)
	}
}

func TestAVerdictEndsWhenACertificateExpires(t *testing.T) {
	var p Projector
	now := time.Now()
	a := certificate(t, "a", func(c *x509.Certificate) { c.NotAfter = now.Add(time.Hour) })
	o := Object{Fields: map[plan.Field]Field{plan.RootCAData: {Data: a}}}
	for _, c := range []struct {
		when string
		at   time.Duration
		want string
	}{
		{"before expiry", 0, "rootCAData certs=1"},
		{"after expiry", 2 * time.Hour, "rootCAData certs=1 warn=an expired certificate"},
		{"after the clock was turned back", 0, "rootCAData certs=1"},
	} {
		if got := brief(p.Project(o, specs(), now.Add(c.at))); got != c.want {
			t.Errorf("%s: got %q, want %q", c.when, got, c.want)
		}
	}
}

// BenchmarkProjectUnchanged is an object of which nothing changed since the last one.
func BenchmarkProjectUnchanged(b *testing.B) { benchmarkProject(b, false) }

// BenchmarkProjectNew is the first object: all 50 certificates are parsed.
func BenchmarkProjectNew(b *testing.B) { benchmarkProject(b, true) }

func benchmarkProject(b *testing.B, forget bool) {
	o, err := DecodeObject(bytes.NewReader(large(b)))
	if err != nil {
		b.Fatal(err)
	}
	var p Projector
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		if forget {
			p = Projector{}
		}
		p.Project(o, specs(), now)
	}
}
