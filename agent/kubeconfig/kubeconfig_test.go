// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"encoding/base64"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// token stands for the credentials of a kubeconfig: it must never come back in an error.
const token = "c2VjcmV0LXRva2Vu"

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// usual is a kubeconfig as the machine config server makes it, with a few things that a rewrite loses.
var usual = `# made by hand, keep
apiVersion: v1
kind: Config
clusters: # one
- cluster:
    certificate-authority-data: ` + b64("old\n") + `   # rotated
    server: https://api-int.example.test:6443
    x-unknown: {a: [1, 2]}
  name: local
contexts:
- context: {cluster: local, user: kubelet}
  name: kubelet
current-context: "kubelet"
preferences: {}
users:
- name: kubelet
  user:
    token: ` + token + "\n"

func replaced(file string) string {
	return strings.Replace(file, b64("old\n"), b64("new, and longer\n"), 1)
}

// crlf is a text with the line ends of another system.
func crlf(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }

const two = `clusters:
- {name: a, cluster: {certificate-authority-data: b3RoZXIK}}
- {name: b, cluster: {certificate-authority-data: b2xkCg==}}
contexts:
- {name: x, context: {cluster: b}}
- {name: y, context: {cluster: c}}
`

func TestOneValueIsReplacedAndEveryOtherByteKept(t *testing.T) {
	for sentence, file := range map[string]string{
		"the usual one":             usual,
		"with other line ends":      crlf(usual),
		"with old line ends":        strings.ReplaceAll(usual, "\n", "\r"),
		"without a last newline":    strings.TrimSpace(usual),
		"with a byte order mark":    "\uFEFF" + usual,
		"between marks":             "---\n" + usual + "...\n",
		"with directives":           "%YAML 1.1\n---\n" + usual,
		"with letters beyond ASCII": strings.Replace(usual, "  name: local", "  name: local # größer als 東京 🚀", 1),
		"with such letters before":  `{"größer東京🚀": "\u2028", "clusters": [{"name": "ä", "cluster": {"certificate-authority-data": "` + b64("old\n") + `"}}]}`,
		"with unusual line breaks":  "# a\u2028# b\u2029# c\u0085" + usual,
		"in double quotes":          strings.Replace(usual, b64("old\n"), `"`+b64("old\n")+`"`, 1),
		"in single quotes":          strings.Replace(usual, b64("old\n"), `'`+b64("old\n")+`'`, 1),
		"on the line below":         strings.Replace(usual, "data: ", "data:\n      ", 1),
		"in JSON":                   `{"kind":"Config","clusters":[{"name":"a","cluster":{"server":"https://a","certificate-authority-data":"` + b64("old\n") + `"}}],"users":[]}`,
		"in JSON over lines": "{\n  \"clusters\": [\n    {\n      \"name\": \"a\",\n      \"cluster\": {\n        " +
			"\"certificate-authority-data\": \"" + b64("old\n") + "\"\n      }\n    }\n  ]\n}\n",
		"the only cluster": `clusters: [{cluster: {certificate-authority-data: ` + b64("old\n") + `}}]`,
		"beside a path, which loses": `clusters: [{cluster: {certificate-authority: /ca.crt, certificate-authority-data: ` +
			b64("old\n") + `}}]
`,
		"of the only cluster, whatever is current": "current-context: none\ncontexts: []\nclusters: [{name: a, cluster: " +
			"{certificate-authority-data: " + b64("old\n") + "}}]",
		"the current of two":            two + "current-context: x\n",
		"with the same value elsewhere": usual + "  x: " + b64("old\n") + "\n",
		"with anchors elsewhere":        usual + "x: &a [1]\ny: *a\n",
	} {
		t.Run(sentence, func(t *testing.T) {
			before := strings.Clone(file)
			if ca, err := CA([]byte(file)); err != nil || string(ca) != "old\n" {
				t.Fatalf("read %q, %v", ca, err)
			}
			out, err := SetCA([]byte(file), []byte("new, and longer\n"))
			if err != nil || string(out) != replaced(file) {
				t.Errorf("have\n%s\n%v, want\n%s", out, err, replaced(file))
			}
			if ca, err := CA(out); err != nil || string(ca) != "new, and longer\n" {
				t.Errorf("read back %q, %v", ca, err)
			}
			if file != before {
				t.Error("the argument was changed")
			}
		})
	}
}

func TestCADataAreReadAsPEMThatEndsALine(t *testing.T) {
	for sentence, tt := range map[string]struct{ value, want string }{
		"with a newline":    {b64("ca\n"), "ca\n"},
		"without one":       {b64("ca"), "ca\n"},
		"nothing":           {`""`, ""},
		"no base64":         {"not-base64!", ""},
		"base64 cut off":    {b64("certificate")[:9], ""},
		"the other letters": {"_-__", ""},
	} {
		file := "clusters: [{cluster: {certificate-authority-data: " + tt.value + "}}]\n"
		ca, err := CA([]byte(file))
		if err != nil || string(ca) != tt.want {
			t.Errorf("%s: read %q, %v; want %q", sentence, ca, err, tt.want)
		}
		if out, err := SetCA([]byte(file), []byte("new")); err != nil || !bytes.Contains(out, []byte(b64("new"))) {
			t.Errorf("%s: %s, %v", sentence, out, err)
		}
	}
}

func TestWhatLeavesADoubtIsRefused(t *testing.T) {
	cluster := func(s string) string { return "clusters: [{name: a, cluster: {" + s + "}}]\n" }
	value := "certificate-authority-data: " + token
	for sentence, tt := range map[string]struct{ file, reason string }{
		"nothing":                     {"", "is empty"},
		"comments only":               {"# " + token + "\n", "is empty"},
		"text":                        {token, "line 1: is not a mapping"},
		"a list":                      {"[" + token + "]", "line 1: is not a mapping"},
		"broken YAML":                 {"a: b: " + token, "is not YAML"},
		"broken YAML further down":    {usual + "\t" + token + ": [", "is not YAML at or near line 18"},
		"an alias of nothing":         {"a: *" + token, "is not YAML"},
		"a control character":         {"a: \x01" + token, "is not YAML"},
		"bytes that are not UTF-8":    {usual + "\xff" + token, "is not UTF-8"},
		"UTF-16":                      {"\xff\xfea\x00", "is not UTF-8"},
		"two documents":               {usual + "---\n" + usual, "holds more than one document"},
		"a second one that is broken": {usual + "---\na: *" + token, "is not YAML"},
		"more than a MiB":             {usual + strings.Repeat("#", maxBytes), "1048963 bytes, more than 1048576"},
		"no clusters":                 {"users: []\n", "has no cluster"},
		"clusters of nothing":         {"clusters:\n", "has no cluster"},
		"an empty list of clusters":   {"clusters: []\n", "has no cluster"},
		"clusters that are a mapping": {"clusters: {a: b}\n", "line 1: a value is of another type than in a kubeconfig"},
		"a cluster that is text":      {"clusters: [" + token + "]\n", "line 1: is not a mapping"},
		"a cluster without content":   {"clusters:\n- name: a\n", "line 2: the cluster is empty"},
		"a cluster that is null":      {"clusters: [{cluster: null}]\n", "line 1: the cluster is empty"},
		"a cluster without a CA": {cluster("server: https://" + token),
			"line 1: the cluster has no certificate-authority-data"},
		"a CA that is null": {cluster("certificate-authority-data: "),
			"line 1: the cluster has no certificate-authority-data"},
		"a path": {cluster("certificate-authority: /" + token),
			"line 1: the cluster names a file, certificate-authority, in place of the data"},
		"a number": {cluster("certificate-authority-data: 12345678"),
			"line 1: a value is of another type than in a kubeconfig"},
		"a list of CAs": {cluster("certificate-authority-data: [" + token + "]"),
			"line 1: a value is of another type than in a kubeconfig"},
		"two clusters, none current":   {two, "has 2 clusters, and none is the current context's"},
		"two, and another is current":  {two + "current-context: y\n", "has 2 clusters, and none is the current context's"},
		"two, and none is the context": {two + "current-context: z\n", "has 2 clusters, and none is the current context's"},
		"two of one name": {strings.Replace(two, "name: a", "name: b", 1) + "current-context: x\n",
			"has 2 clusters of the current context's name"},
		"two contexts of one name": {strings.Replace(two, "name: y", "name: x", 1) + "current-context: x\n",
			"has 2 contexts of the current one's name"},
		"CA data twice":  {cluster(value + ", " + value), "line 1: a key for the second time"},
		"clusters twice": {usual + usual[strings.Index(usual, "clusters"):], "line 19: a key for the second time"},
		"an anchor at the value": {cluster("certificate-authority-data: &" + token + " " + token),
			"line 1: an anchor or alias"},
		"an alias at the value": {"a: &x " + token + "\n" + cluster("certificate-authority-data: *x"),
			"line 2: an anchor or alias"},
		"a tag at the value":     {cluster("certificate-authority-data: !!str " + token), "line 1: a tag"},
		"a binary tag":           {cluster("certificate-authority-data: !!binary " + token), "line 1: a tag"},
		"an anchor at the list":  {"clusters: &x\n- cluster: {" + value + "}\n", "line 1: an anchor or alias"},
		"an alias to a cluster":  {"x: &x {" + value + "}\nclusters: [{cluster: *x}]\n", "line 2: an anchor or alias"},
		"an anchor at a cluster": {"clusters: [{cluster: &x {" + value + "}}]\n", "line 1: an anchor or alias"},
		"a merge key": {"x: &x {" + value + "}\nclusters: [{cluster: {<<: *x}}]\n",
			"line 2: a merge key, or one that is not a word"},
		"a list for a key": {cluster("? [a]\n: b, " + value), "line 1: a merge key, or one that is not a word"},
		"a literal block": {"clusters:\n- cluster:\n    certificate-authority-data: |\n      " + token + "\n",
			"line 3: the CA data are a block of lines"},
		"a folded block": {"clusters:\n- cluster:\n    certificate-authority-data: >-\n      " + token + "\n",
			"line 3: the CA data are a block of lines"},
		"a value over two lines": {"clusters:\n- cluster:\n    certificate-authority-data: " + token + "\n      " + token +
			"\n", "line 3: the CA data are spread over lines, or written with escapes"},
		"a quoted one over lines": {"clusters:\n- cluster:\n    certificate-authority-data: \"" + token + "\\\n      " +
			token + "\"\n", "line 3: the CA data are spread over lines, or written with escapes"},
		"an escape": {`{"clusters":[{"cluster":{"certificate-authority-data":"\u0041` + token + `"}}]}`,
			"line 1: the CA data are spread over lines, or written with escapes"},
		"an escaped slash": {`{"clusters":[{"cluster":{"certificate-authority-data":"A\/` + token + `"}}]}`, "is not YAML"},
	} {
		t.Run(sentence, func(t *testing.T) {
			for _, ask := range []func([]byte) ([]byte, error){
				CA, func(f []byte) ([]byte, error) { return SetCA(f, []byte("ca\n")) }} {
				out, err := ask([]byte(tt.file))
				if err == nil || err.Error() != tt.reason || out != nil {
					t.Errorf("have %q, %v; want %s", out, err, tt.reason)
				}
				if err != nil && strings.Contains(err.Error(), token) {
					t.Errorf("the error shows content: %v", err)
				}
			}
		})
	}
}

func TestAResultThatCouldNotBeReadAgainIsNotMade(t *testing.T) {
	for sentence, ca := range map[string][]byte{"nothing": nil, "a value that is too large": bytes.Repeat([]byte("x"),
		maxBytes)} {
		if out, err := SetCA([]byte(usual), ca); err == nil || out != nil {
			t.Errorf("%s: have %d bytes, want an error", sentence, len(out))
		}
	}
}

func FuzzSetCA(f *testing.F) {
	for _, seed := range []string{usual, crlf(usual), two + "current-context: x\n", "\uFEFF" + usual,
		`{"clusters":[{"cluster":{"certificate-authority-data":"YQ=="}}]}`,
		"clusters:\n- cluster:\n    certificate-authority-data: |\n      YQ==\n",
		"? clusters\n: - ? cluster\n    : {? certificate-authority-data : 'YQ=='}\n"} {
		f.Add([]byte(seed), []byte("-----BEGIN CERTIFICATE-----\n"))
	}
	f.Fuzz(func(t *testing.T, file, ca []byte) {
		_, readErr := CA(file)
		out, err := SetCA(file, ca)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\x00") || out != nil {
				t.Errorf("not one line, or a result beside it: %q", err)
			}
			return
		}
		if readErr != nil {
			t.Errorf("was edited, and cannot be read: %v", readErr)
		}
		want := ca
		if !bytes.HasSuffix(ca, []byte("\n")) {
			want = append(bytes.Clone(ca), '\n')
		}
		if got, err := CA(out); err != nil || !bytes.Equal(got, want) {
			t.Errorf("read back %q, %v; want %q", got, err, want)
		}
		if again, err := SetCA(out, ca); err != nil || !bytes.Equal(again, out) {
			t.Errorf("a second time gives %q, %v", again, err)
		}
		// One run of bytes differs, and as data one value.
		text := base64.StdEncoding.EncodeToString(ca)
		at := bytes.Index(out, []byte(text))
		for ; at >= 0 && !fits(file, out, at, len(text)); at = next(out, text, at) {
		}
		if at < 0 {
			t.Errorf("more than the value changed:\n%q\n%q", file, out)
		}
		if a, b := decoded(t, file), decoded(t, out); a != nil && differences(a, b) > 1 {
			t.Errorf("%d values differ:\n%q\n%q", differences(a, b), file, out)
		}
	})
}

// fits reports whether out is file with something else in place of the n bytes at.
func fits(file, out []byte, at, n int) bool {
	tail := out[at+n:]
	return bytes.HasPrefix(file, out[:at]) && bytes.HasSuffix(file, tail) && at+len(tail) <= len(file)
}

func next(out []byte, text string, at int) int {
	i := bytes.Index(out[at+1:], []byte(text))
	if i < 0 {
		return -1
	}
	return at + 1 + i
}

// decoded is what another reader makes of a file; nil if it wants none of it.
func decoded(t *testing.T, file []byte) (v any) {
	t.Helper()
	if yaml.Unmarshal(file, &v) != nil {
		return nil
	}
	return v
}

// differences counts the leaves in which two values differ.
func differences(a, b any) (n int) {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return 1 << 20
		}
		for k := range x {
			n += differences(x[k], y[k])
		}
		return n
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return 1 << 20
		}
		for i := range x {
			n += differences(x[i], y[i])
		}
		return n
	}
	if x, ok := a.(float64); ok && x != x {
		return 0 // not a number, which differs from itself
	}
	if !reflect.DeepEqual(a, b) {
		return 1
	}
	return 0
}
