// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

// spec is the object's spec; []byte values become base64.
type spec = map[string]any

// row is a controllerconfig of the corpus: a name, a comment, the spec.
type row struct {
	name, comment string
	spec          spec
}

// text is a case of another kind: a file's text, or the members of a ConfigMap beside its metadata.
type text struct {
	name, comment string
	input         any
}

func root(data any) spec { return spec{"rootCAData": data} }

func registry(file, data any) spec { return spec{"file": file, "data": data} }

func registries(entries ...any) spec { return spec{"imageRegistryBundleData": entries} }

// named is a list with one registry beside a good one: what is wrong with the one must not cost the
// other its file.
func named(file string) spec {
	return registries(registry(file, ca("a")), registry("good.example..5000", ca("good")))
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// seven is a bundle of the usual size with one block replaced.
func seven(place int, by []byte) []byte {
	var all [][]byte
	for i := range 7 {
		all = append(all, ca(fmt.Sprint("signer-", i+1)))
	}
	all[place-1] = by
	return join(all...)
}

func damaged(b []byte) []byte { return bytes.Replace(b, []byte("\nMII"), []byte("\n!II"), 1) }

func headed(b []byte) []byte {
	p := first(b)
	p.Headers = map[string]string{"Friendly-Name": "corporate root"}
	return pem.EncodeToMemory(p)
}

// table are the cases that are made by machine. Comments are wrapped when they are written.
func table() []row { return slices.Concat(fields(), bundles(), readings(), names(), lists()) }

func fields() []row {
	return []row{
		{"field-absent", "A spec with none of our fields asks for nothing, and nothing is taken away.",
			spec{"clusterDNSIP": "172.30.0.10"}},
		{"field-null", "The required fields of OpenShift's object are nullable. Null asks for nothing: the last good file " +
			"stays.", spec{
			"rootCAData": nil, "cloudProviderCAData": nil, "additionalTrustBundle": nil, "imageRegistryBundleData": nil,
			"internalRegistryPullSecret": nil}},
		{"field-empty", "Empty bytes ask for nothing. The machine config daemon makes a file with one newline of them.", spec{
			"kubeAPIServerServingCAData": "", "rootCAData": "", "imageRegistryBundleData": []any{},
			"imageRegistryBundleUserData": []any{}}},
		{"field-one-newline", "One newline is what an emptied ConfigMap key often holds. A kubelet that is restarted does " +
			"not start with such a client CA file.",
			spec{"kubeAPIServerServingCAData": []byte("\n")}},
		{"field-not-base64", "An API server does not send this; something that stands in for it may.", root("%%%%")},
		{"field-of-another-type", "Values of another type are refused one by one; the fields beside them go on.", spec{
			"rootCAData": 7, "cloudProviderCAData": []any{}, "additionalTrustBundle": spec{}, "imageRegistryBundleData": "x",
			"kubeAPIServerServingCAData": ca("a")}},
	}
}

func bundles() []row {
	a, b := ca("a"), ca("b")
	return []row{
		{"bundle-good", "Two CAs in the form in which every program reads them: the file has the published bytes.",
			root(join(a, b))},
		{"bundle-without-final-newline", "The final newline that is missing is added, as the machine config daemon does.",
			root(bytes.TrimSuffix(a, []byte("\n")))},
		{"bundle-text", "The word that OpenShift's own API test puts into its CA fields: the API accepts it.",
			root([]byte("certificate"))},
		{"bundle-der", "DER is not PEM, and no consumer reads it as a bundle.", root(first(a).Bytes)},
		{"bundle-crlf", "CRLF line ends are read by every consumer we know and come from editors. The file has none.",
			root(bytes.ReplaceAll(a, []byte("\n"), []byte("\r\n")))},
		{"bundle-comments", "Comments around the blocks, as in a distribution's trust store, are left out of the file.",
			root(join([]byte("# Corporate root G1\n"), a, []byte("\n# and G2\n"), b, []byte("# end\n")))},
		{"bundle-bom", "A byte order mark before the first block hides it from PEM readers, OpenSSL's included: the bundle " +
			"would have lost its first CA in silence.",
			root(join([]byte("\xef\xbb\xbf"), a, b))},
		{"bundle-headers", "PEM headers (RFC 1421) are not part of RFC 7468. A kubelet skips such a block, and does not " +
			"start if there is no other; OpenSSL does not load the file.", root(headed(a))},
		{"bundle-duplicates", "A certificate twice counts once, and stands in the file once.", root(join(a, b, a))},
		{"bundle-leaf-alone", "A server's certificate anchors nothing: a bundle of it would cut everybody off.",
			root(leaf("server", "a"))},
		{"bundle-leaf-beside", "A leaf beside a CA does no harm and no good.", root(join(a, leaf("server", "a")))},
		{"bundle-v1-root", "Roots of X.509 version 1 have no basic constraints; crypto/x509 trusts them as anchors.",
			root(v1("old-root"))},
		{"bundle-expired-beside", "Publishers prune late: an expired CA beside a good one.", root(join(a, expired("old")))},
		{"bundle-expired-only", "Only expired CAs. The clock may be wrong, and nothing is lost by writing: what is on disk " +
			"and still valid is held.", root(expired("old"))},
		{"bundle-not-yet-valid", "A slow clock must not keep the next CA away: NotBefore neither refuses nor warns.",
			root(future("next"))},
		{"bundle-private-key", "A private key was pasted with its certificate. The file would be readable by everybody.",
			root(join(a, privateKey()))},
		{"bundle-private-key-half", "The same, cut off in the middle of the key.", root(join(a, privateKey()[:60]))},
		{"bundle-crl", "A block of another kind.", root(join(a, block("X509 CRL", []byte("x"))))},
		{"bundle-trusted-certificate",
			"OpenSSL's own TRUSTED CERTIFICATE holds more than a certificate; Go's reader skips it.",
			root(block("TRUSTED CERTIFICATE", first(a).Bytes))},
		{"bundle-truncated-last", "The last block was cut off: readers skip it without a word.",
			root(join(a, b)[:len(a)+len(b)-40])},
		{"bundle-one-bad-of-seven",
			"The fourth of seven blocks does not decode. Writing the other six would drop a CA that " +
				"is published.", root(seven(4, damaged(ca("signer-4"))))},
		{"bundle-one-not-a-certificate", "The fourth of seven blocks decodes, but not to a certificate.",
			root(seven(4, block("CERTIFICATE", []byte("certificate"))))},
		{"bundle-end-only", "An end without a beginning is half of something.",
			root(join([]byte("-----END CERTIFICATE-----\n"), a))},
	}
}

// readings are bundles in which one program finds something else than another.
func readings() []row {
	a, b := ca("a"), ca("b")
	line := base64.StdEncoding.EncodeToString(first(a).Bytes)
	return []row{
		{"bundle-headers-beside", "One block of two has headers: a kubelet would have lost this CA in silence.",
			root(join(a, headed(b)))},
		{"bundle-x509-certificate", "The label of OpenSSL before 0.9.5. It still reads it; Go and p11-kit do not.",
			root(bytes.ReplaceAll(a, []byte(" CERTIFICATE-"), []byte(" X509 CERTIFICATE-")))},
		{"bundle-label-in-lower-case", "Nobody reads this.", root(join(a,
			bytes.ReplaceAll(b, []byte(" CERTIFICATE-"), []byte(" certificate-"))))},
		{"bundle-p11-kit", "p11-kit's own format in what others take for a comment. update-ca-trust would read it alone, " +
			"with an anchor that no record shows, or with distrust of the distribution's roots.",
			root(join([]byte("[p11-kit-object-v1]\nclass: certificate\ncertificate-type: x-509\ntrusted: true\nvalue: "+
				"\"%30%82\"\n"), a))},
		{"bundle-p11-kit-mark", "The mark of that format anywhere makes p11-kit load nothing at all.",
			root(join(a, []byte("# not an [p11-kit-object-v1]\n")))},
		{"bundle-blank-line-in-block", "A blank line ends the headers for OpenSSL and p11-kit, which then miss what stood " +
			"before it.", root(join(a[:93], []byte("\n"), a[93:]))},
		{"bundle-white-space", "White space at line ends is skipped by all. The file has none.",
			root(bytes.ReplaceAll(a, []byte("\n"), []byte(" \t\n")))},
		{"bundle-indented", "Blocks that are indented: Go and OpenSSL find none of them, p11-kit all.",
			root(bytes.ReplaceAll(a, []byte("\n-----"), []byte("\n  -----")))},
		{"bundle-one-line", "A block in one line. OpenSSL 1.1.1 cuts such lines into pieces; the file has lines of 64.",
			root([]byte("-----BEGIN CERTIFICATE-----\n" + line + "\n-----END CERTIFICATE-----\n"))},
		{"bundle-76-columns", "Lines of 76, as base64(1) makes them, are read by all.",
			root([]byte("-----BEGIN CERTIFICATE-----\n" + line[:76] + "\n" + line[76:152] + "\n" + line[152:228] + "\n" +
				line[228:304] + "\n" + line[304:] + "\n-----END CERTIFICATE-----\n"))},
		{"bundle-commented-out", "A block that is commented out. p11-kit looks for marks anywhere in a line.",
			root(join(a, []byte("# "), bytes.ReplaceAll(b, []byte("\n"), []byte("\n# "))))},
		{"bundle-mark-in-text", "A mark at the end of a long line: OpenSSL reads lines of 254 bytes and takes the rest for " +
			"another.", root(join(a, bytes.Repeat([]byte("#"), 254), b))},
		{"bundle-two-begins", "Two beginnings and one end.", root(join([]byte("-----BEGIN CERTIFICATE-----\n"), a, b))},
		{"bundle-carriage-returns", "Lines that end in CR alone are one line to Go and OpenSSL.",
			root(bytes.ReplaceAll(join(a, b), []byte("\n"), []byte("\r")))},
		{"bundle-nul", "A NUL ends the text for programs in C.", root(join(a, []byte("\x00\n"), b))},
		{"bundle-utf-16", "Text of another system.", root(bytes.ReplaceAll(a, []byte(""), []byte("\x00"))[1:])},
		{"bundle-form-feed", "Text of old editors: white space to C, not to Go.",
			root(join(a[:27], []byte("\f"), a[27:], b))},
		{"bundle-umlauts", "Comments beyond ASCII harm nobody.", root(join([]byte("# Größere Wurzel 根\n"), a))},
		{"bundle-spare-bits", "The bits that base64 has left over are not zero: p11-kit skips such a block.",
			root(join(a, spare(b)))},
		{"bundle-der-left-over", "Bytes after the certificate in its block.",
			root(block("CERTIFICATE", join(first(a).Bytes, []byte{5, 0})))},
		{"bundle-two-in-a-block", "Two certificates in one block.", root(block("CERTIFICATE",
			join(first(a).Bytes, first(b).Bytes)))},
		{"bundle-basic-constraints", "Basic constraints with another element in them: Go passes over it, p11-kit refuses " +
			"the certificate.", root(join(a, odd("odd")))},
		{"bundle-longer", "An element after the signature: Go passes over it, OpenSSL does not load the file.",
			root(join(a, longer("longer")))},
	}
}

func names() []row {
	long := strings.Repeat("a", 60)
	return []row{
		{"name-port", "Two dots are a colon, because a ConfigMap's key cannot hold one.", named("registry.example..5000")},
		{"name-slash", "A slash would be another directory.", named("registry.example/team")},
		{"name-traversal", "The way out of the directory: each .. is a colon, and a colon is followed by a port.",
			named("../../../etc/kubernetes")},
		{"name-absolute", "An absolute path.", named("/etc/kubernetes")},
		{"name-dots-at-both-ends", "Colons at both ends: there is neither host nor port.", named("..registry.example..")},
		{"name-several-dots", "Every .. is a colon, as in the machine config daemon. The node-ca daemon replaces the last " +
			"one only, so that such a name would have two directories: refused.",
			named("a..b..5000")},
		{"name-three-dots", "Three dots are a colon and a dot.", named("registry...5000")},
		{"name-dot", "The directory itself.", named(".")},
		{"name-dotdot", "Two dots alone are a colon alone.", named("..")},
		{"name-hidden", "A leading dot is a hidden directory.", named(".registry.example")},
		{"name-upper-case", "Hosts are the same in either case, directories are not. Runtimes look for the spelling of the " +
			"image reference, so it is kept.", named("Registry.Example..5000")},
		{"name-ipv4", "An IPv4 address with a port.", named("192.0.2.7..5000")},
		{"name-ipv6", "An IPv6 address in brackets, with a port. Its own :: is not touched.", named("[2001:db8::1]..5000")},
		{"name-ipv6-dots", "The same with every colon as two dots.", named("[2001..db8....1]..5000")},
		{"name-ipv6-bare", "Without brackets nobody can tell the port from the address.", named("2001:db8::1")},
		{"name-ipv6-zone", "A zone means something on one host only.", named("[fe80::1%eth0]..5000")},
		{"name-nul", "A NUL ends a path for the kernel.", named("registry\x00.example")},
		{"name-newline", "A line end forges a second line in whatever prints the name.", named("registry\n.example")},
		{"name-not-ascii", "A Cyrillic letter that looks Latin.", named("r\u0435gistry.example")},
		{"name-255-bytes", "The longest name that a file system takes as one element.",
			named(strings.Join([]string{long, long, long, long, "abcdefghijk"}, "."))},
		{"name-300-bytes", "Longer than that.", named(strings.Repeat(long+".", 5)[:300])},
		{"name-port-zero", "Port 0 is no port.", named("registry.example..0")},
		{"name-port-too-high", "Nor is 65536.", named("registry.example..65536")},
		{"name-missing", "Entries without a name may be old acquaintances: as long as there is one, nothing counts as " +
			"missing from the list.", registries(
			registry("", ca("a")), registry(nil, ca("a")), registry(7, ca("a")), spec{"data": ca("a")},
			registry("good.example..5000", ca("good")))},
	}
}

func lists() []row {
	a, b := ca("a"), ca("b")
	return []row{
		{"names-that-become-one", "Two spellings of one name with different content: whichever won would be chance.",
			registries(
				registry("r.example..5000", a), registry("r.example:5000", b), registry("good.example..5000", a))},
		{"names-that-become-one-alike", "The same with the same content.",
			registries(registry("r.example..5000", a), registry("r.example:5000", a))},
		{"entry-empty", "An entry that is there and empty asks for nothing; its last good file stays.", registries(
			registry("empty.example", ""), registry("null.example", nil), registry("good.example", a))},
		{"entry-one-newline", "One newline in an entry.", registries(registry("r.example", []byte("\n")),
			registry("good.example", a))},
		{"entry-not-an-object", "An entry that is no object has no name.",
			registries(7, nil, "x", registry("good.example", a))},
		{"entry-private-key", "A key in one entry costs that entry only.",
			registries(registry("r.example", join(a, privateKey())), registry("good.example", a))},
		{"entry-self-signed-leaf", "Small registries are trusted by their own certificate.",
			registries(registry("r.example", selfSignedLeaf("r.example")))},
		{"entry-issued-leaf", "A runtime may be given the server's certificate itself.",
			registries(registry("r.example", leaf("r.example", "a")))},
		{"user-data-wins", "Both lists name a registry: the user's entry is written, as by the machine config daemon.", spec{
			"imageRegistryBundleData":     []any{registry("r.example..5000", a)},
			"imageRegistryBundleUserData": []any{registry("r.example..5000", b)}}},
		{"user-data-refused", "The user's entry is not fit. The other list does not step in: that would be other trust " +
			"because of a typing error.", spec{
			"imageRegistryBundleData":     []any{registry("r.example..5000", a), registry("good.example", a)},
			"imageRegistryBundleUserData": []any{registry("r.example..5000", []byte("x"))}}},
	}
}

// Contents are the values of all fields and entries of bytes in the table: what a reader of bundles
// has to cope with.
func Contents() (all [][]byte) {
	var collect func(v any)
	collect = func(v any) {
		switch v := v.(type) {
		case []byte:
			all = append(all, v)
		case spec:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				collect(v[name])
			}
		case []any:
			for _, e := range v {
				collect(e)
			}
		}
	}
	for _, r := range table() {
		collect(r.spec)
	}
	return all
}

// Names are the registry names in the table.
func Names() (all []string) {
	for _, r := range table() {
		list, _ := r.spec["imageRegistryBundleData"].([]any)
		for _, e := range list {
			entry, _ := e.(spec)
			if file, ok := entry["file"].(string); ok {
				all = append(all, file)
			}
		}
	}
	return all
}

// Large are the cases that are too large to be stored, by name: 2 MiB in one field, and 10 000
// registries.
func Large() map[string][]byte {
	many := make([]any, 10000)
	for i := range many {
		many[i] = registry(fmt.Sprintf("r%05d.example..5000", i), ca("a"))
	}
	big := bytes.Repeat(ca("a"), 1+(2<<20)/len(ca("a")))
	out := make(map[string][]byte)
	for name, s := range map[string]spec{
		"2 MiB":             {"rootCAData": big, "kubeAPIServerServingCAData": ca("b")},
		"10 000 registries": {"imageRegistryBundleData": many, "kubeAPIServerServingCAData": ca("b")},
	} {
		j, err := json.Marshal(object(s))
		must.OK(err)
		out[name] = j
	}
	return out
}

func object(s spec) spec {
	return spec{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
		"metadata": spec{"name": "machine-config-controller", "uid": "8d5d6d2c-64b5-4d2a-9a1a-0d6a1e6b7c11",
			"resourceVersion": "4711"}, "spec": plain(s)}
}

// plain replaces bytes by base64, as encoding/json would and YAML does not.
func plain(v any) any {
	switch v := v.(type) {
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case spec:
		out := make(spec, len(v))
		for k, e := range v {
			out[k] = plain(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = plain(e)
		}
		return out
	}
	return v
}

// Generated are the files that the tables make, by name in Dir, each up to its outcome.
func Generated() map[string][]byte {
	out := make(map[string][]byte)
	for _, r := range table() {
		out[r.name+".yaml"] = commented(r.comment, object(r.spec))
	}
	for kind, texts := range map[Kind][]text{PullSecrets: pullSecrets(), Kubeconfigs: kubeconfigs(),
		ConfigMaps: configMaps()} {
		for _, c := range texts {
			out[filepath.Join(string(kind), c.name+".yaml")] = commented(c.comment, c.input)
		}
	}
	return out
}

func commented(comment string, input any) []byte {
	var b bytes.Buffer
	for _, line := range wrap(comment, 98) {
		b.WriteString("# " + line + "\n")
	}
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	must.OK(e.Encode(input))
	return b.Bytes()
}

// heading stands between the input of a case and its outcome.
func heading(name string) []byte {
	where := map[Kind]string{
		Objects:     "on a host without managed files",
		PullSecrets: "on a host without managed files",
		Kubeconfigs: "of putting another CA in place",
		ConfigMaps:  "on a host with a kubeconfig",
	}[Kind(filepath.Dir(name))]
	return []byte("---\n# The outcome " + where + ".\n")
}

// Write brings the folder up to date; outcomes stay as they are, unless outcomes has another for the
// case, by the kind's folder and its name.
func Write(outcomes map[string][]string) error {
	for name, text := range Generated() {
		file := filepath.Join(Dir(), name)
		after := []byte("[]\n")
		if old, err := os.ReadFile(file); err == nil {
			if _, kept, ok := bytes.Cut(old, heading(name)); ok {
				after = kept
			}
		}
		if lines, ok := outcomes[strings.TrimSuffix(name, ".yaml")]; ok {
			list, err := yaml.Marshal(lines)
			if err != nil {
				return err
			}
			after = list
		}
		if err := os.WriteFile(file, slices.Concat(text, heading(name), after), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}
