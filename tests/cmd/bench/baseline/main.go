// SPDX-License-Identifier: Apache-2.0

// Command baseline is what the benchmark compares the agent with: the least that can follow an object
// and keep its files durably, in one process with all privileges.
//
// It holds one watch over net/http (HTTP/2, TLS), decodes each event by encoding/json into the six
// fields alone, and replaces every file whose content changed: a temporary file beside it, fsync,
// rename, fsync of the directory. It validates nothing, plans nothing, records nothing, looks at
// nothing that is on the disk, and ends at the first thing that goes wrong.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

var (
	server     = flag.String("server", "", "`URL` of the API server")
	collection = flag.String("collection", "", "`PATH` of the objects on it")
	name       = flag.String("name", "", "the object's `NAME`")
	pki        = flag.String("pki", "", "`DIR` with ca.crt, client.crt and client.key")
	root       = flag.String("root", "", "`DIR` below which the files are kept")
)

// event is one line of the stream.
type event struct {
	Type   string `json:"type"`
	Object struct {
		Spec struct {
			KubeAPIServerServingCAData  []byte     `json:"kubeAPIServerServingCAData"`
			RootCAData                  []byte     `json:"rootCAData"`
			CloudProviderCAData         []byte     `json:"cloudProviderCAData"`
			AdditionalTrustBundle       []byte     `json:"additionalTrustBundle"`
			ImageRegistryBundleData     []registry `json:"imageRegistryBundleData"`
			ImageRegistryBundleUserData []registry `json:"imageRegistryBundleUserData"`
		} `json:"spec"`
	} `json:"object"`
}

type registry struct {
	File string `json:"file"`
	Data []byte `json:"data"`
}

func main() {
	flag.Parse()
	if err := follow(); err != nil {
		fmt.Fprintln(os.Stderr, "baseline:", err)
		os.Exit(1)
	}
}

func follow() error {
	client, err := connect()
	if err != nil {
		return err
	}
	query := url.Values{"watch": {"true"}, "fieldSelector": {"metadata.name=" + *name}, "timeoutSeconds": {"86400"}}
	res, err := client.Get(*server + *collection + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	files := map[string][]byte{}
	for events := json.NewDecoder(res.Body); ; {
		var e event
		if err := events.Decode(&e); err != nil {
			return err
		}
		if e.Type != "ADDED" && e.Type != "MODIFIED" {
			return fmt.Errorf("an event %s", e.Type)
		}
		if err := e.write(files); err != nil {
			return err
		}
	}
}

func connect() (*http.Client, error) {
	ca, err := os.ReadFile(filepath.Join(*pki, "ca.crt"))
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(*pki, "client.crt"), filepath.Join(*pki, "client.key"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}}, nil
}

// write replaces what differs from files, which is what was written before. The places are those of
// the agent's fields.
func (e *event) write(files map[string][]byte) error {
	s := &e.Object.Spec
	want := []registry{
		{"etc/kubernetes/kubelet-ca.crt", s.KubeAPIServerServingCAData},
		{"etc/kubernetes/ca.crt", s.RootCAData},
		{"etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem", s.CloudProviderCAData},
		{"etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt", s.AdditionalTrustBundle},
	}
	for _, list := range [][]registry{s.ImageRegistryBundleData, s.ImageRegistryBundleUserData} {
		for _, r := range list {
			want = append(want, registry{"etc/docker/certs.d/" + strings.ReplaceAll(r.File, "..", ":") + "/ca.crt", r.Data})
		}
	}
	for _, f := range want {
		if bytes.Equal(files[f.File], f.Data) {
			continue
		}
		if err := replace(filepath.Join(*root, f.File), f.Data); err != nil {
			return err
		}
		files[f.File] = f.Data
	}
	return nil
}

// replace is the durable rename.
func replace(path string, data []byte) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".")
	if errors.Is(err, os.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o755); err == nil {
			tmp, err = os.CreateTemp(dir, ".")
		}
	}
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
