// SPDX-License-Identifier: Apache-2.0

// Command load asks a control plane the whole time: its API server with admin.conf and its etcd with the pair for health
// checks, on connections that are kept and on fresh ones. Its arguments are the URL of the API server, and a file: when
// that appears it ends, and prints what it saw. A request that fails is made once more at once; one that fails twice has failed.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/kubeconfig"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
)

const (
	pki     = "/etc/kubernetes/pki/"
	timeout = 10 * time.Second
	pause   = 50 * time.Millisecond
)

// seen is what became of the requests.
type seen struct {
	mu             sync.Mutex
	asked, retries int
	failed         []string
	slowest        time.Duration
}

func main() {
	s := &seen{}
	var all sync.WaitGroup
	ended := func() bool { _, err := os.Stat(os.Args[2]); return err == nil }
	for name, worker := range map[string]func(name string) func() error{
		"api, kept": keptAPI, "api, fresh": freshAPI, "etcd, kept": keptEtcd, "etcd, fresh": freshEtcd} {
		all.Go(func() {
			do := worker(name)
			for tick := time.NewTicker(pause); !ended(); <-tick.C {
				s.request(name, do)
			}
		})
	}
	all.Wait()
	for _, f := range s.failed {
		fmt.Println("failed:", f)
	}
	fmt.Printf("%d requests, %d retries, %d failed, slowest %d ms\n", s.asked, s.retries, len(s.failed), s.slowest.Milliseconds())
}

func (s *seen) request(name string, do func() error) {
	begun := time.Now()
	first := do()
	err := first
	if first != nil {
		err = do()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	s.slowest = max(s.slowest, time.Since(begun))
	if first != nil {
		s.retries++
		fmt.Printf("%s %s: %v\n", time.Now().Format(time.TimeOnly), name, first)
	}
	if err != nil {
		s.failed = append(s.failed, fmt.Sprintf("%s %s: %v, then %v", time.Now().Format(time.TimeOnly), name, first, err))
	}
}

// trust is the certificate of a CA.
func trust(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	pool := x509.NewCertPool()
	if err == nil && !pool.AppendCertsFromPEM(text) {
		err = errors.New(file + " holds no certificate")
	}
	return pool, err
}

// admin is a client of the API server with a kubeconfig.
func admin(conf []byte) (*http.Client, string, error) {
	u, err := kubeconfig.CurrentUser(conf)
	if err != nil {
		return nil, "", err
	}
	pair, err := tls.X509KeyPair(u.Certificate, u.Key)
	if err != nil {
		return nil, "", err
	}
	roots, err := trust(pki + "ca.crt")
	if err != nil {
		return nil, "", err
	}
	return &http.Client{Timeout: timeout, Transport: &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}}, os.Args[1], nil
}

// write changes a ConfigMap by server-side apply, which makes it if it is not there, and reads it.
func write(c *http.Client, server, name string) error {
	url := server + "/api/v1/namespaces/default/configmaps/load-" + name
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"load-%s"},"data":{"at":"%d"}}`, name,
		time.Now().UnixNano())
	apply, err := http.NewRequest(http.MethodPatch, url+"?fieldManager=load&force=true", bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	apply.Header.Set("Content-Type", "application/apply-patch+yaml")
	read, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	for _, q := range []*http.Request{apply, read} {
		r, err := c.Do(q)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil || r.StatusCode > 201 {
			return fmt.Errorf("%s: %s, %.200s, %v", q.Method, r.Status, text, err)
		}
	}
	return nil
}

const adminConf = "/etc/kubernetes/admin.conf"

// keptAPI keeps its connection for as long as the kubeconfig stays: the API server looks at the end of a client's
// certificate with each request.
func keptAPI(string) func() error {
	var client *http.Client
	var server string
	var of []byte
	return func() error {
		conf, err := os.ReadFile(adminConf)
		if err != nil {
			return err
		}
		if !bytes.Equal(conf, of) {
			if client, server, err = admin(conf); err != nil {
				return err
			}
			of = conf
		}
		return write(client, server, "kept")
	}
}

func freshAPI(string) func() error {
	return func() error {
		conf, err := os.ReadFile(adminConf)
		if err != nil {
			return err
		}
		client, server, err := admin(conf)
		if err != nil {
			return err
		}
		defer client.CloseIdleConnections()
		return write(client, server, "fresh")
	}
}

// member is a client of the host's etcd, which reads its pair for each connection.
func member() (*etcd.Client, error) {
	roots, err := trust(pki + "etcd/ca.crt")
	if err != nil {
		return nil, err
	}
	return etcd.New("https://127.0.0.1:2379", &tls.Config{RootCAs: roots,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(pki+"etcd/healthcheck-client.crt", pki+"etcd/healthcheck-client.key")
			return &pair, err
		}}, timeout)
}

// change reads a key and changes it.
func change(c *etcd.Client, name string) error {
	key := "/load/" + name
	was, err := c.Get(context.Background(), key)
	if err != nil {
		return err
	}
	ch := etcd.Change{Key: key, Value: []byte("x")}
	if was != nil {
		ch.From = was.ModRevision
	}
	_, err = c.Commit(context.Background(), ch)
	return err
}

func keptEtcd(name string) func() error {
	c, err := member()
	return func() error {
		if err != nil {
			return err
		}
		return change(c, name)
	}
}

func freshEtcd(name string) func() error {
	return func() error {
		c, err := member()
		if err != nil {
			return err
		}
		defer c.Close()
		return change(c, name)
	}
}
