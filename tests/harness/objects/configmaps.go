// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// The ConfigMap that the profile openshift follows, and its key.
const (
	ConfigMapNamespace = "openshift-machine-config-operator"
	ConfigMapName      = "kubeconfig-data"
	ConfigMapKey       = "ca-bundle.crt"
)

// configMap has these members beside its metadata.
func configMap(members spec) spec {
	m := spec{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": spec{"name": ConfigMapName, "namespace": ConfigMapNamespace,
			"uid": "0f4c7e54-6d6a-4d5c-8f3e-6b1f8f0c2f11", "resourceVersion": "4712"}}
	for name, value := range members {
		m[name] = plain(value)
	}
	return m
}

// data and binary are a ConfigMap with our key in one of its two parts.
func data(value any) spec   { return configMap(spec{"data": spec{ConfigMapKey: value}}) }
func binary(value any) spec { return configMap(spec{"binaryData": spec{ConfigMapKey: value}}) }

func configMaps() []text {
	a, b := ca("a"), ca("b")
	encoded := base64.StdEncoding.EncodeToString(join(a, b))
	var lines strings.Builder
	for at := 0; at < len(encoded); at += 76 {
		lines.WriteString(encoded[at:min(at+76, len(encoded))] + "\n")
	}
	return []text{
		{"binary", "Bytes, as the API server keeps them in binaryData.", binary(join(a, b))},
		{"text", "PEM in data, as the machine config operator publishes it.", data(string(join(a, b)))},
		{"text-base64", "Base64 in data: encoded once more by whoever made it. PEM never is base64, so there is no doubt.",
			data(encoded)},
		{"text-base64-of-lines", "The same in lines, as base64(1) prints it.", data(lines.String())},
		{"text-base64-of-der", "Base64 of DER is one CA that no reader of PEM finds.",
			data(base64.StdEncoding.EncodeToString(first(a).Bytes))},
		{"binary-base64", "Bytes that are base64 are encoded twice. Only text may be base64: the machine config daemon, " +
			"too, writes such bytes as they are.",
			binary([]byte(encoded))},
		{"both", "The key in both parts, which an API server does not allow. What stood in last place wins; binaryData " +
			"comes first in the alphabet, so this is data.",
			configMap(spec{"data": spec{ConfigMapKey: string(a)}, "binaryData": spec{ConfigMapKey: b}})},
		{"neither", "Neither part.", configMap(nil)},
		{"nulls", "Null for both parts.", configMap(spec{"data": nil, "binaryData": nil})},
		{"key-missing", "Another key. The CA on the host stays, and the reason is told.",
			configMap(spec{"data": spec{"ca.crt": string(a)}})},
		{"key-in-capitals", "Keys are case-sensitive.", configMap(spec{"data": spec{"CA-bundle.crt": string(a)}})},
		{"key-null", "Null for our key.", data(nil)},
		{"others-beside", "Other keys in both parts are none of ours.",
			configMap(spec{"data": spec{ConfigMapKey: string(a), "x": Secret}, "binaryData": spec{"y": []byte(Secret)}})},
		{"empty-text", "Empty text asks for nothing.", data("")},
		{"empty-bytes", "Nor do empty bytes.", binary("")},
		{"one-newline", "One newline is what an emptied key often holds. Like empty text it asks for nothing: the CA on the " +
			"host stays.", data("\n")},
		{"not-base64", "An API server does not send this; something that stands in for it may.", binary("%%%%")},
		{"neither-pem-nor-base64", "Text that is neither.", data("certificate, " + Secret)},
		{"number", "A number.", data(7)},
		{"crlf", "CRLF line ends.", data(string(bytes.ReplaceAll(a, []byte("\n"), []byte("\r\n"))))},
		{"leaf", "A server's certificate, which anchors nothing.", data(string(leaf("server", "a")))},
		{"private-key", "A key beside its certificate.", data(string(join(a, privateKey())))},
		{"truncated-last", "The last block was cut off.", data(string(join(a, b)[:len(a)+len(b)-40]))},
		{"spec-beside", "A field of the other object, which a ConfigMap does not have, feeds no field.", func() spec {
			m := data(string(a))
			m["spec"] = plain(spec{"rootCAData": b})
			return m
		}()},
	}
}
