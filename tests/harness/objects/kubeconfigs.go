// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
)

var (
	oldCA   = base64.StdEncoding.EncodeToString(ca("old"))
	otherCA = base64.StdEncoding.EncodeToString(ca("other"))
)

// caData is the one member that is ours to change, with the CA that every host has at first.
var caData = "certificate-authority-data: " + oldCA

// kubeletFile is the kubeconfig that a kubelet bootstraps with, as the machine config server makes it.
var kubeletFile = `apiVersion: v1
kind: Config
clusters:
- cluster:
    ` + caData + `
    server: https://api-int.example.test:6443
  name: local
contexts:
- context:
    cluster: local
    user: kubelet
  name: kubelet
current-context: kubelet
preferences: {}
users:
- name: kubelet
  user:
    token: ` + Secret + "\n"

// twoClusters has another cluster first; context is the current one's name.
func twoClusters(context string) string {
	return fmt.Sprintf(`clusters:
- {name: other, cluster: {certificate-authority-data: %s, server: "https://other.example.test:6443"}}
- {name: local, cluster: {certificate-authority-data: %s, server: "https://api-int.example.test:6443"}}
contexts:
- {name: there, context: {cluster: other, user: kubelet}}
- {name: here, context: {cluster: local, user: kubelet}}
- {name: nowhere, context: {cluster: gone, user: kubelet}}
users:
- {name: kubelet, user: {token: %s}}
%s`, otherCA, oldCA, Secret, context)
}

// with is the usual file with one piece of text replaced.
func with(old, new string) string { return strings.Replace(kubeletFile, old, new, 1) }

func kubeconfigs() []text {
	return slices.Concat(editable(), editableStyles(), noCAData(), unclearClusters(), unclearValues(), notKubeconfigs())
}

func editable() []text {
	return []text{
		{"usual", "As the machine config server makes it.", kubeletFile},
		{"comments", "Comments in every place, one of them with what looks like the value. An encoder would lose or move " +
			"them.",
			"# made by hand\n" + strings.NewReplacer("clusters:", "clusters: # one", oldCA+"\n", oldCA+"   # rotated\n",
				"  name: local", "  # "+caData+"\n  name: local").Replace(kubeletFile)},
		{"unknown-fields", "Fields of a later version, or of somebody's own.",
			strings.Replace(with("    server:", "    x-site: {a: [1, 2.50], b: ~}\n    server:"), "preferences",
				"extensions: [{name: x, extension: {y: 0x10}}]\npreferences", 1)},
		{"current-of-two", "Two clusters, and the current context's is the second: the other one keeps its CA.",
			twoClusters("current-context: here\n")},
		{"only-cluster-whatever-is-current", "A current context that is not there, and one cluster: clients that name none " +
			"use it.",
			with("current-context: kubelet", "current-context: none")},
		{"without-contexts", "One cluster and nothing else.", "clusters: [{name: local, cluster: {" + caData + "}}]\n"},
		{"path-beside", "A path beside the data loses in every client (clientcmd's validation says so).",
			with("    server:", "    certificate-authority: /etc/kubernetes/ca.crt\n    server:")},
		{"value-elsewhere", "The same text in another place is no CA and stays.", kubeletFile + "x: " + oldCA + "\n"},
		{"anchors-elsewhere", "An anchor and its alias among what is not on the way to the value.",
			kubeletFile + "x: &a [1]\ny: *a\n"},
		{"value-not-base64", "What is there is not base64. It verifies nothing, and is replaced.",
			with(oldCA, "not-base64!")},
		{"value-empty", "Empty in quotes: the same.", with(oldCA, `""`)},
	}
}

func editableStyles() []text {
	return []text{
		{"crlf", "Line ends of another system stay.", strings.ReplaceAll(kubeletFile, "\n", "\r\n")},
		{"without-final-newline", "Nor is a newline added: the file is somebody else's.", strings.TrimSpace(kubeletFile)},
		{"bom", "A byte order mark, which YAML allows.", "\ufeff" + kubeletFile},
		{"document-marks", "Marks around the one document.", "---\n" + kubeletFile + "...\n"},
		{"json-on-one-line", "JSON is YAML.",
			`{"kind":"Config","apiVersion":"v1","clusters":[{"name":"local","cluster":{"server":"https://api-int.example.test:6443","certificate-authority-data":"` + oldCA + `"}}],"users":[{"name":"kubelet","user":{"token":"` + Secret + `"}}]}`},
		{"json-indented", "JSON as kubectl prints it.",
			"{\n    \"clusters\": [\n        {\n            \"name\": \"local\",\n            \"cluster\": {\n                " +
				"\"certificate-authority-data\": \"" + oldCA + "\"\n            }\n        }\n    ]\n}\n"},
		{"double-quotes", "The value in double quotes.", with(oldCA, `"`+oldCA+`"`)},
		{"single-quotes", "The value in single quotes.", with(oldCA, `'`+oldCA+`'`)},
		{"on-the-next-line", "The value below its key.", with("data: ", "data:\n      ")},
		{"letters-beyond-ascii", "Characters of several bytes before the value, on its line and above.",
			"# größer als 東京 🚀\n" + `{"größer 東京 🚀": "x", clusters: [{name: ä, cluster: {` + caData +
				"}}]}\n"},
	}
}

func noCAData() []text {
	return []text{
		{"ca-by-path", "The CA is another file. It is not followed: whose it is, nobody here knows.",
			with(caData, "certificate-authority: /var/lib/"+Secret)},
		{"no-ca", "The cluster relies on the system's trust store. To add data would be another decision than to renew them.",
			with("    "+caData+"\n", "")},
		{"ca-null", "Null is no data.", with(oldCA, "~")},
		{"no-cluster", "No cluster at all.", "apiVersion: v1\nkind: Config\nclusters: []\nusers: [{name: kubelet, user: " +
			"{token: " + Secret + "}}]\n"},
		{"no-clusters", "Not even a list of them.", "apiVersion: v1\nkind: Config\nusers: [{name: kubelet, user: {token: " +
			Secret + "}}]\n"},
		{"cluster-empty", "A name and nothing behind it.", "clusters:\n- name: " + Secret + "\n"},
	}
}

func unclearClusters() []text {
	return []text{
		{"two-without-current", "Two clusters and no current context.", twoClusters("")},
		{"two-and-current-unknown", "Two clusters, and the current context is not there.",
			twoClusters("current-context: " + Secret + "\n")},
		{"two-and-cluster-unknown", "Two clusters, and the current context names a third.",
			twoClusters("current-context: nowhere\n")},
		{"two-of-one-name", "Two clusters of the current context's name: clients differ in which they take.",
			strings.ReplaceAll(twoClusters("current-context: here\n"), "other", "local")},
		{"contexts-of-one-name", "Two contexts of the current one's name.",
			strings.Replace(twoClusters("current-context: here\n"), "name: there", "name: here", 1)},
		{"clusters-twice", "A key for the second time: some readers take the first, some the last.",
			kubeletFile + "clusters: []\n"},
	}
}

func unclearValues() []text {
	return []text{
		{"anchor-at-value", "Somebody else's alias may stand for the value, and would change with it.",
			with(oldCA, "&ca "+oldCA)},
		{"alias-at-value", "The value stands elsewhere.", "x: &ca " + oldCA + "\n" + with(oldCA, "*ca")},
		{"alias-for-cluster", "The cluster stands elsewhere.", "x: &c {" + caData +
			"}\nclusters: [{name: local, cluster: *c}]\n"},
		{"anchor-at-cluster", "The cluster may stand for others, too.",
			"clusters: [{name: local, cluster: &c {" + caData + "}}]\n"},
		{"merge-key", "Merge keys are of YAML 1.1 and read by some.", "x: &c {" + caData +
			"}\nclusters: [{name: local, cluster: {<<: *c}}]\n"},
		{"literal-block", "A block of lines: the value's text is not in one place.", with(oldCA, "|\n      "+oldCA)},
		{"folded-block", "A folded block.", with(oldCA, ">-\n      "+oldCA[:76]+"\n      "+oldCA[76:])},
		{"value-over-lines", "A plain value over two lines, which is one with a space in it.",
			with(oldCA, oldCA[:76]+"\n      "+oldCA[76:])},
		{"value-with-escape", "The first letter as an escape.", with(oldCA, `"\x4c`+oldCA[1:]+`"`)},
		{"value-tagged", "A tag says how the value is to be read.", with(oldCA, "!!binary "+oldCA)},
		{"value-number", "A number.", with(oldCA, "12345678")},
		{"value-twice", "The key for the second time.", with("    server:",
			"    certificate-authority-data: "+otherCA+"\n    server:")},
	}
}

func notKubeconfigs() []text {
	return []text{
		{"empty", "An empty file.", ""},
		{"comment-only", "A file that was commented out.", "# token: " + Secret + "\n"},
		{"token-only", "A token in place of a kubeconfig.", Secret},
		{"not-yaml", "What YAML's reader says of such a line quotes it.", kubeletFile + "\t" + Secret + ": [\n"},
		{"two-documents", "Clients read the first only.", kubeletFile + "---\n" + kubeletFile},
		{"not-utf-8", "A byte that is no character.", kubeletFile + "# \xff\n"},
		{"nul", "A NUL, as a crash of the file system leaves it.", kubeletFile + "\x00"},
	}
}
