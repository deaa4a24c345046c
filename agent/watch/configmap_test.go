// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

const configMapKey = "ca-bundle.crt"

// configMap renders one with these members beside its metadata.
func configMap(tb testing.TB, members fields) []byte {
	tb.Helper()
	all := fields{"apiVersion": "v1", "kind": "ConfigMap", "metadata": fields{"name": "kubeconfig-data", "namespace": "ns",
		"uid": "u", "resourceVersion": "7"}}
	maps.Copy(all, members)
	b, err := json.Marshal(all)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func decodeConfigMap(t *testing.T, body string) Object {
	t.Helper()
	d := newDecoder(strings.NewReader(body), nil, nil)
	d.key = configMapKey
	d.begin()
	var e event
	if err := d.object(&e); err != nil {
		t.Fatal(err)
	}
	return e.object
}

func TestAConfigMapFeedsEveryKubeconfigFieldWithOneKey(t *testing.T) {
	pem := string(certificate(t, "ca"))
	encoded := base64.StdEncoding.EncodeToString([]byte(pem))
	for sentence, tt := range map[string]struct {
		members      fields
		data, reason string
	}{
		"binary":         {fields{"binaryData": fields{configMapKey: []byte(pem)}}, pem, ""},
		"text":           {fields{"data": fields{configMapKey: pem}}, pem, ""},
		"text in base64": {fields{"data": fields{configMapKey: encoded}}, pem, ""},
		"text in base64 of many lines": {fields{"data": fields{configMapKey: "\n" + encoded[:76] + "\n" + encoded[76:] +
			"\n"}}, pem, ""},
		"text that is neither": {fields{"data": fields{configMapKey: "hello, world"}}, "hello, world", ""},
		"with other keys beside": {fields{"data": fields{"other": "x", configMapKey: pem},
			"binaryData": fields{"another": []byte("x")}}, pem, ""},
		"with a spec, which is not ours": {fields{"data": fields{configMapKey: pem},
			"spec": fields{"rootCAData": []byte("x")}}, pem, ""},
		"empty text":  {fields{"data": fields{configMapKey: ""}}, "", ""},
		"empty bytes": {fields{"binaryData": fields{configMapKey: ""}}, "", ""},
		"another key": {fields{"data": fields{"CA-bundle.crt": pem}}, "",
			"the ConfigMap has no key ca-bundle.crt"},
		"no data":                  {fields{}, "", "the ConfigMap has no key ca-bundle.crt"},
		"null":                     {fields{"data": nil}, "", "the ConfigMap has no key ca-bundle.crt"},
		"a number":                 {fields{"data": fields{configMapKey: 7}}, "", "is a number, not text"},
		"bytes that are no base64": {fields{"binaryData": fields{configMapKey: "!"}}, "", "is not valid base64"},
		"too much text": {fields{"data": fields{configMapKey: strings.Repeat("!", 1<<20+1)}}, "",
			"is larger than 1048576 bytes"},
	} {
		t.Run(sentence, func(t *testing.T) {
			o := decodeConfigMap(t, string(configMap(t, tt.members)))
			if len(o.Fields) != 2 || o.ResourceVersion != "7" {
				t.Fatalf("have %d fields of version %q", len(o.Fields), o.ResourceVersion)
			}
			for _, id := range []plan.Field{plan.KubeconfigCAData, plan.KubeletKubeconfigCAData} {
				if f := o.Fields[id]; string(f.Data) != tt.data || f.Reason != tt.reason {
					t.Errorf("%s: have %.40q, %s; want %.40q, %s", id, f.Data, f.Reason, tt.data, tt.reason)
				}
			}
		})
	}
}

func TestAControllerConfigFeedsNoKubeconfigField(t *testing.T) {
	o, err := DecodeObject(strings.NewReader(string(object(t, fields{"kubeconfigCAData": []byte("x"),
		"rootCAData": []byte("y")}))))
	if err != nil || len(o.Fields) != 1 {
		t.Errorf("have %v, %v", o.Fields, err)
	}
}

// startConfigMap is start for the second source.
func startConfigMap(t *testing.T) (*server, *Watcher) {
	t.Helper()
	s := newServer(t)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	w := New(Options{Client: s.Client(), Server: u, Version: "v1", Resource: "configmaps", Namespace: "ns",
		Name: "kubeconfig-data", Key: configMapKey, RetryJitter: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); receive(t, ended, "end of Run") })
	return s, w
}

func TestTheConfigMapIsFollowedAsTheObjectIs(t *testing.T) {
	s, w := startConfigMap(t)
	q := s.next(t)
	if q.URL.Path != "/api/v1/namespaces/ns/configmaps" || !strings.Contains(q.URL.RawQuery,
		"fieldSelector=metadata.name%3Dkubeconfig-data") {
		t.Errorf("asked for %s", q.URL)
	}
	reads := func(want State, reason string) Reading {
		t.Helper()
		for {
			if r := receive(t, w.Readings(), string(want)); r.State == want {
				if !strings.Contains(r.Reason, reason) {
					t.Errorf("reason %q, want %q", r.Reason, reason)
				}
				return r
			}
		}
	}
	one := configMap(t, fields{"data": fields{configMapKey: "one"}})
	q.open(line("ADDED", one), line("BOOKMARK", []byte(`{"kind":"ConfigMap","metadata":{"resourceVersion":"8"}}`)))
	if r := reads(Following, ""); string(r.Object.Fields[plan.KubeconfigCAData].Data) != "one" {
		t.Errorf("read %+v", r.Object)
	}
	q.send(line("DELETED", one))
	if r := reads(NotFound, "kubeconfig-data was deleted"); string(r.Object.Fields[plan.KubeconfigCAData].Data) != "one" {
		t.Errorf("what was read is gone: %+v", r.Object)
	}
	q.close()
	s.next(t).refuse(403, "configmaps is forbidden")
	reads(Forbidden, "configmaps is forbidden")
}

func TestFieldsThatNoFieldWantsAreNotKept(t *testing.T) {
	s := newServer(t)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	w := New(Options{Client: s.Client(), Server: u, Group: "g", Version: "v1", Resource: "r", Name: objectName,
		Fields: []plan.Field{plan.RootCAData}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); receive(t, ended, "end of Run") })
	s.next(t).open(line("ADDED", object(t, fields{"rootCAData": []byte("x"),
		"internalRegistryPullSecret": []byte("secret")})))
	for {
		if r := receive(t, w.Readings(), "object"); r.Object != nil {
			if len(r.Object.Fields) != 1 || string(r.Object.Fields[plan.RootCAData].Data) != "x" {
				t.Errorf("kept %v", r.Object.Fields)
			}
			return
		}
	}
}
