// SPDX-License-Identifier: Apache-2.0

// Package workload reads the NodeCertificateState of single nodes in a workload cluster, with the credentials that
// Cluster API keeps in the Secret CLUSTER-kubeconfig.
//
// Whoever writes that Secret is not this process: a kubeconfig is refused as a whole unless each of its clusters and
// users states nothing but a server by https, its CAs, a client certificate and its key, all of them inside. So no
// program is run, no file read, no proxy asked and no token sent anywhere. The server is verified against these CAs
// alone. One kind of object is read, by its name, and no answer may be longer than an API server's objects are.
//
// Source: Cluster API, util/secret (Kubeconfig) and util/kubeconfig.
package workload

import (
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
)

// maxKubeconfig, in bytes, is far beyond what one of Cluster API takes.
const maxKubeconfig = 64 << 10

// kubeconfig is everything that one may hold. What has no effect is here because clientcmd writes it.
type kubeconfig struct {
	APIVersion     string    `json:"apiVersion"`
	Kind           string    `json:"kind"`
	Preferences    struct{}  `json:"preferences"`
	CurrentContext string    `json:"current-context"`
	Clusters       []cluster `json:"clusters"`
	Users          []user    `json:"users"`
	Contexts       []context `json:"contexts"`
}

type cluster struct {
	Name  string `json:"name"`
	Value struct {
		Server string `json:"server"`
		CA     []byte `json:"certificate-authority-data"`
	} `json:"cluster"`
}

type user struct {
	Name  string `json:"name"`
	Value struct {
		Certificate []byte `json:"client-certificate-data"`
		Key         []byte `json:"client-key-data"`
	} `json:"user"`
}

type context struct {
	Name  string `json:"name"`
	Value struct {
		Cluster   string `json:"cluster"`
		User      string `json:"user"`
		Namespace string `json:"namespace"`
	} `json:"context"`
}

// errForm hides what a parser quotes of its input, which may be a key.
var errForm = errors.New("has more than servers, CAs, client certificates and keys as data, or is no kubeconfig")

// parse reads a kubeconfig. No error quotes it.
func parse(data []byte) (apiserver.Config, error) {
	var k kubeconfig
	if len(data) > maxKubeconfig {
		return apiserver.Config{}, fmt.Errorf("has more than %d bytes", maxKubeconfig)
	}
	if err := yaml.UnmarshalStrict(data, &k); err != nil {
		return apiserver.Config{}, errForm
	}
	chosen := one(k.Contexts, func(c context) bool { return c.Name == k.CurrentContext })
	if chosen == nil {
		return apiserver.Config{}, errors.New("has no current context")
	}
	c := one(k.Clusters, func(c cluster) bool { return c.Name == chosen.Value.Cluster })
	u := one(k.Users, func(u user) bool { return u.Name == chosen.Value.User })
	switch {
	case c == nil || u == nil:
		return apiserver.Config{}, errors.New("has no such cluster or user as its context names")
	case !apiserver.HoldsCA(c.Value.CA):
		return apiserver.Config{}, errors.New("states no CA")
	case len(u.Value.Certificate) == 0 || len(u.Value.Key) == 0:
		return apiserver.Config{}, errors.New("states no client certificate with its key")
	}
	return apiserver.Cluster{Server: c.Value.Server, CA: c.Value.CA}.Config(u.Value.Certificate, u.Value.Key)
}

// one is the only entry that is looked for, or nil.
func one[T any](all []T, is func(T) bool) (found *T) {
	for i := range all {
		switch {
		case !is(all[i]):
		case found != nil:
			return nil
		default:
			found = &all[i]
		}
	}
	return found
}
