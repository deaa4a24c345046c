// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

const password = "hunter-two"

func pullSecret() string {
	return `{"auths":{"registry.example":{"auth":"` + base64.StdEncoding.EncodeToString([]byte("puller:"+password)) +
		`"}}}`
}

func TestPullSecrets(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("puller:" + password))
	for sentence, tt := range map[string]struct{ content, reason string }{
		"a login": {pullSecret(), ""},
		"a login with more beside": {`{"auths":{"a":{"auth":"` + auth + `","email":"x@example.org"}},"HttpHeaders":{}}`,
			""},
		"a user and a password":      {`{"auths":{"a":{"username":"u","password":"` + password + `"}}}`, ""},
		"an identity token":          {`{"auths":{"a":{"identitytoken":"` + password + `"}}}`, ""},
		"a registry token":           {`{"auths":{"a":{"registrytoken":"` + password + `"}}}`, ""},
		"space around":               {"\n " + pullSecret() + "\r\n", ""},
		"text":                       {password, "is not JSON, or has a name twice"},
		"a document that is cut off": {pullSecret()[:30], "is not JSON, or has a name twice"},
		"two documents":              {pullSecret() + pullSecret(), "is not JSON, or has a name twice"},
		"bytes that are not UTF-8":   {"{\"auths\":{\"\xff\":{}}}", "is not JSON, or has a name twice"},
		"a registry twice": {`{"auths":{"a":{"auth":"` + auth + `"},"a":{"auth":"` + auth + `"}}}`,
			"is not JSON, or has a name twice"},
		"null":                   {"null", "is not a JSON object"},
		"a list":                 {"[]", "is not a JSON object"},
		"no auths":               {"{}", "has no object auths with a registry in it"},
		"auths of nothing":       {`{"auths":{}}`, "has no object auths with a registry in it"},
		"auths that are null":    {`{"auths":null}`, "has no object auths with a registry in it"},
		"auths that are a list":  {`{"auths":["` + password + `"]}`, "has no object auths with a registry in it"},
		"auths in other letters": {`{"Auths":{"a":{"auth":"` + auth + `"}}}`, "has auths in other letters"},
		"the old format without auths": {`{"registry.example":{"auth":"` + auth + `"}}`,
			"has no object auths with a registry in it"},
		"a login that is null": {`{"auths":{"a":null}}`,
			"registry 1 of auths, in the order of names, is not an object of texts"},
		"a login that is text": {`{"auths":{"a":"` + password + `"}}`,
			"registry 1 of auths, in the order of names, is not an object of texts"},
		"an auth that is a number": {`{"auths":{"a":{"auth":5}}}`,
			"registry 1 of auths, in the order of names, is not an object of texts"},
		"an auth that is not base64": {`{"auths":{"b":{"auth":"` + password + `"},"a":{"auth":"` + auth + `"}}}`,
			"registry 2 of auths, in the order of names, has an auth that is not user:password in base64"},
		"an auth without a colon": {`{"auths":{"a":{"auth":"aHVudGVyLXR3bw=="}}}`,
			"registry 1 of auths, in the order of names, has an auth that is not user:password in base64"},
		"an auth of no user": {`{"auths":{"a":{"auth":"Omg="}}}`,
			"registry 1 of auths, in the order of names, has an auth that is not user:password in base64"},
		"an empty auth": {`{"auths":{"a":{"auth":""}}}`,
			"registry 1 of auths, in the order of names, has an auth that is not user:password in base64"},
		"an empty login": {`{"auths":{"a":{}}}`,
			"registry 1 of auths, in the order of names, has no credential"},
		"a user without a password": {`{"auths":{"a":{"username":"` + password + `"}}}`,
			"registry 1 of auths, in the order of names, has no credential"},
		"a helper for all registries": {`{"credsStore":"x","auths":{"a":{"auth":"` + auth + `"}}}`,
			"has credsstore, which names a program to run"},
		"a helper in other letters": {`{"CREDHELPERS":{"a":"x"},"auths":{"a":{"auth":"` + auth + `"}}}`,
			"has credhelpers, which names a program to run"},
		"more than the ControllerConfig can hold": {`{"auths":{"a":{"auth":"` + strings.Repeat("A", 1<<20) + `"}}}`,
			"1048604 bytes, more than 1048576"},
	} {
		t.Run(sentence, func(t *testing.T) {
			e, err := FileSpec{Field: InternalRegistryPullSecret}.Entry("", []byte(tt.content), time.Time{})
			if tt.reason == "" {
				want := tt.content
				if !strings.HasSuffix(want, "\n") {
					want += "\n"
				}
				if err != nil || string(e.Data) != want || e.Digest != DigestOf(e.Data) || len(e.Certs) > 0 || len(e.Warnings) > 0 {
					t.Errorf("have %v, %v", e, err)
				}
				return
			}
			if err == nil || err.Error() != tt.reason || len(e.Data) > 0 {
				t.Errorf("have %v, want %s", err, tt.reason)
			}
		})
	}
}

func TestNoTextFormShowsWhatAFileHolds(t *testing.T) {
	e, err := FileSpec{Field: InternalRegistryPullSecret}.Entry("", []byte(pullSecret()), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	spec := FileSpec{Field: InternalRegistryPullSecret, Path: "/etc/mco/pull.json", Mode: 0o600}
	d := Desired{Entries: []Entry{e}}
	p := Compute(Input{Desired: d, Policy: Policy{Files: []FileSpec{spec}}})
	if len(p.Writes) != 1 {
		t.Fatalf("have %v", p)
	}
	secrets := []string{password, pullSecret()[30:60], fmt.Sprintf("%x", pullSecret()[30:60]),
		fmt.Sprint([]byte(pullSecret()[30:40])), base64.StdEncoding.EncodeToString([]byte(pullSecret()))[48:72]}
	for what, v := range map[string]any{"entry": e, "pointer": &e, "desired": d, "plan": p, "write": p.Writes[0],
		"commit": p.Commit(), "commit write": p.Commit().Writes[0]} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%o", "%t"} {
			shows(t, what+" "+verb, fmt.Sprintf(verb, v), secrets)
		}
	}
	// The commit is the request to the privileged half, and the only one that may carry bytes.
	for what, v := range map[string]any{"entry": e, "desired": d.Entries, "plan": p.Writes} {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		shows(t, what+" in JSON", string(b), secrets)
	}
}

func shows(t *testing.T, what, text string, secrets []string) {
	t.Helper()
	for _, s := range secrets {
		if strings.Contains(strings.Trim(text, "[]"), strings.Trim(s, "[]")) {
			t.Errorf("%s shows the secret: %s", what, text)
		}
	}
}

func TestAPullSecretOnDiskIsReplacedUnseenByWhatTheObjectSaysAndNotByWhatIsRemembered(t *testing.T) {
	e, err := FileSpec{Field: InternalRegistryPullSecret}.Entry("", []byte(pullSecret()), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	spec := FileSpec{Field: InternalRegistryPullSecret, Path: "/etc/mco/pull.json", Mode: 0o600}
	another := File{Kind: Regular, Digest: DigestOf([]byte("another")), Mode: 0o600}
	wide := File{Kind: Regular, Digest: e.Digest, Mode: 0o644}
	for sentence, tt := range map[string]struct {
		file     File
		verified bool
		writes   cause
		kept     int
	}{
		"another, and the ControllerConfig was read":  {another, true, different, 0},
		"another, and it was not":                     {another, false, "", 1},
		"none, and the ControllerConfig was not read": {File{}, false, missing, 0},
		"the same, which everybody could read":        {wide, false, wrongMode, 0},
	} {
		p := Compute(Input{Desired: Desired{Entries: []Entry{e}, Verified: tt.verified},
			Policy:   Policy{Files: []FileSpec{spec}},
			Observed: Observed{e.Key: tt.file}})
		if len(p.Refused) > 0 || len(p.Retained) != tt.kept || (len(p.Writes) > 0) != (tt.writes != "") {
			t.Errorf("%s: have %v", sentence, p)
		} else if len(p.Writes) > 0 && p.Writes[0].Cause != tt.writes {
			t.Errorf("%s: written because %s, want %s", sentence, p.Writes[0].Cause, tt.writes)
		}
	}
}
