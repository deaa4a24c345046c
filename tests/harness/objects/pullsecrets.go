// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// Secret is in every case that has something to hide: as it is, or as the password of a login in base64.
// No outcome may show it.
const Secret = "hunter-two-hunter-two"

// Secrets are the forms in which Secret stands in the corpus.
func Secrets() []string {
	return []string{Secret, auth, auth[:20], base64.StdEncoding.EncodeToString([]byte(Secret)),
		base64.StdEncoding.EncodeToString([]byte(login()))[60:100]}
}

var auth = base64.StdEncoding.EncodeToString([]byte("puller:" + Secret))

const internal = "image-registry.openshift-image-registry.svc:5000"

// login is a docker config with one registry.
func login() string { return `{"auths":{"` + internal + `":{"auth":"` + auth + `"}}}` }

// entry is a docker config whose one registry has this login, as JSON.
func entry(value string) string { return `{"auths":{"` + internal + `":` + value + `}}` }

func pullSecrets() []text { return slices.Concat(goodPullSecrets(), badPullSecrets(), badLogins()) }

func goodPullSecrets() []text {
	var indented bytes.Buffer
	must.OK(json.Indent(&indented, []byte(login()), "", "  "))
	return []text{
		{"good", "One login and a final newline: written as published.", login() + "\n"},
		{"good-without-final-newline",
			"OpenShift encodes it without a newline. One is added, as in every file of ours that " +
				"stands alone; readers of JSON do not mind.", login()},
		{"good-indented", "As a person would write it.", indented.String() + "\n"},
		{"good-with-more-beside", "Fields that are not ours to know, the old email among them, stay.",
			`{"HttpHeaders":{"User-Agent":"x"},"auths":{"` + internal + `":{"auth":"` + auth +
				`","email":"serviceaccount@example.org"}}}`},
		{"good-user-and-password", "A login in two fields in place of one.",
			entry(`{"username":"puller","password":"` + Secret + `"}`)},
		{"good-identity-token", "A token that is exchanged for another.", entry(`{"identitytoken":"` + Secret + `"}`)},
		{"good-registry-token", "A token that is sent as it is.", entry(`{"registrytoken":"` + Secret + `"}`)},
		{"good-many-registries", "Each name that the internal registry has, as OpenShift publishes them.",
			`{"auths":{"172.30.0.9:5000":{"auth":"` + auth + `"},"` + internal + `":{"auth":"` + auth +
				`"},"registry.apps.example.org":{"auth":"` + auth + `"}}}`},
	}
}

func badPullSecrets() []text {
	good := login()
	return []text{
		{"not-json", "A bare token in place of the document.", Secret},
		{"not-json-but-yaml", "The same document as YAML, which no container runtime reads.",
			"auths:\n  " + internal + ":\n    auth: " + auth + "\n"},
		{"cut-off", "The document ends in the middle.", good[:len(good)-20]},
		{"two-documents", "Readers take the first and some complain of the second.", good + "\n" + good},
		{"bom", "A byte order mark is not JSON (RFC 8259, 8.1).", "\ufeff" + good},
		{"not-utf-8", "A byte that is no character.", strings.Replace(good, "svc", "s\xffc", 1)},
		{"null", "Null is JSON, and no login.", "null"},
		{"list", "A list of logins.", `[{"auth":"` + auth + `"}]`},
		{"text", "The document once more in quotes: encoded twice.", `"` + strings.ReplaceAll(good, `"`, `\"`) + `"`},
		{"base64-twice", "The document was encoded twice on its way into the object.",
			base64.StdEncoding.EncodeToString([]byte(good))},
		{"no-auths", "An empty object. It would take the node's access to the internal registry away.", "{}"},
		{"old-dockercfg", "The older format, .dockercfg, has the registries at the top.",
			`{"` + internal + `":{"auth":"` + auth + `"}}`},
		{"auths-empty", "No registry.", `{"auths":{}}`},
		{"auths-null", "Null for the registries.", `{"auths":null}`},
		{"auths-list", "A list of registries.", `{"auths":["` + Secret + `"]}`},
		{"auths-in-capitals", "Readers written in Go take it for auths, others do not.",
			strings.Replace(good, "auths", "Auths", 1)},
		{"auths-twice", "Which of the two counts depends on the reader.",
			strings.Replace(good, `{"auths"`, `{"auths":{},"auths"`, 1)},
		{"registry-twice", "One registry with two logins.", `{"auths":{"r.example":{"auth":"` + auth +
			`"},"r.example":{"auth":"` + auth + `"}}}`},
		{"creds-store", "It names a program to run for every registry, as root.",
			strings.Replace(good, "{", `{"credsStore":"`+Secret+`",`, 1)},
		{"cred-helpers", "It names a program to run for one registry.",
			strings.Replace(good, "{", `{"credHelpers":{"r.example":"`+Secret+`"},`, 1)},
		{"cred-helpers-in-capitals", "Readers written in Go take it for credHelpers.",
			strings.Replace(good, "{", `{"CREDHELPERS":{"r.example":"x"},`, 1)},
	}
}

func badLogins() []text {
	return []text{
		{"login-empty", "An entry without a credential, as docker leaves it where a helper has the credential.", entry("{}")},
		{"login-null", "Null for a login.", entry("null")},
		{"login-text", "A token in place of a login.", entry(`"` + Secret + `"`)},
		{"login-user-only", "A user without a password.", entry(`{"username":"` + Secret + `"}`)},
		{"login-auth-empty", "An empty auth, as docker logout leaves it.", entry(`{"auth":""}`)},
		{"login-auth-not-base64", "The password as it is.", entry(`{"auth":"puller:` + Secret + `"}`)},
		{"login-auth-without-colon", "A password without its user.", entry(`{"auth":"` +
			base64.StdEncoding.EncodeToString([]byte(Secret)) + `"}`)},
		{"login-auth-of-no-user", "A password after a colon.", entry(`{"auth":"` +
			base64.StdEncoding.EncodeToString([]byte(":"+Secret)) + `"}`)},
		{"login-auth-number", "A number.", entry(`{"auth":7}`)},
		{"login-one-of-three",
			"One of three logins is not fit. The file is refused whole: without one of its registries it " +
				"would be another.",
			`{"auths":{"a.example":{"auth":"` + auth + `"},"b.example":{},"c.example":{"auth":"` + auth + `"}}}`},
	}
}

// LargePullSecrets are those that are too large to be stored: the largest that is taken, with its final
// newline, and one byte more.
func LargePullSecrets() (most, more string) {
	fill := func(n int) string {
		head, tail := `{"auths":{"`+internal+`":{"auth":"`+auth+`"}},"x":"`, "\"}\n"
		return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
	}
	return fill(pki.MaxBytes), fill(pki.MaxBytes + 1)
}
