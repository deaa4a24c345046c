// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/apiserver"
	"github.com/node-cert-agent/node-cert-agent/agent/check"
	"github.com/node-cert-agent/node-cert-agent/agent/config"
	"github.com/node-cert-agent/node-cert-agent/agent/identity"
	"github.com/node-cert-agent/node-cert-agent/agent/pki"
	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

// apiPatience bounds what one question to the API server may take.
const apiPatience = 10 * time.Second

// status takes over what the service says of itself.
func (c *collector) status() {
	s, err := c.access.Status()
	if err != nil {
		return
	}
	f := &c.facts.Service
	f.Published, f.State, f.Reason, f.Error, f.Refused = true, string(s.State), s.Reason, s.Error, s.Refused
	if s.Identity != nil {
		f.Renew = s.Identity.Renew
	}
}

// api asks the server as the service does: with its identity, and trusting what it trusts.
func (c *collector) api(ctx context.Context) {
	id, err := c.access.Identity(c.facts.Node.Name)
	f := &c.facts.Identity
	f.Foreign = c.opt.Foreign
	switch {
	case errors.Is(err, fs.ErrPermission) && !f.Foreign:
		f.Unseen = true
		return
	case err != nil:
		f.Problem = err.Error()
		return
	}
	if certs := pki.Read(id.Certificate()).Certs; len(certs) > 0 {
		f.NotBefore, f.NotAfter = certs[0].NotBefore, certs[0].NotAfter
	}
	if bundle := c.trusted(); bundle != nil && !f.Foreign {
		if id, err = id.Trusting(bundle); err != nil {
			f.Problem = err.Error()
			return
		}
	}
	ctx, cancel := context.WithTimeout(ctx, apiPatience)
	defer cancel()
	s := identity.Review(ctx, id)
	c.facts.API = check.API{Asked: true, Server: id.Server().Host, Status: s.Status, Reason: s.Reason,
		Untrusted: s.Untrusted, User: s.User, MayAsk: s.MayAsk, AskReason: s.AskReason}
	c.facts.Clock.Server = s.Date
	if s.Status/100 == 2 {
		c.objects(ctx, id)
	}
}

// trusted is what is in the bundle of trust.source.
func (c *collector) trusted() []byte {
	for _, f := range c.facts.Files {
		if f.Field == c.opt.Settings.Policy.Trust.Source {
			return f.Data
		}
	}
	return nil
}

// objects reads what is watched, of which only the answer counts.
func (c *collector) objects(ctx context.Context, id *apiserver.Conn) {
	o, m := c.opt.Settings.ControllerConfig, c.opt.Settings.ConfigMap
	look := func(kind, name string, path ...string) {
		read := readable(ctx, id, path)
		read.Kind, read.Name = kind, name
		c.facts.API.Objects = append(c.facts.API.Objects, read)
	}
	look("ControllerConfig", o.Resource+"."+o.Group+" "+o.Name, "/apis", o.Group, o.Version, o.Resource, o.Name)
	if m != (config.ConfigMap{}) {
		look("ConfigMap", "configmaps "+m.Namespace+"/"+m.Name, "/api/v1/namespaces", m.Namespace, "configmaps", m.Name)
	}
}

func readable(ctx context.Context, id *apiserver.Conn, path []string) (out check.Object) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, id.Server().JoinPath(path...).String(), nil)
	if err != nil {
		out.Reason = err.Error()
		return out
	}
	req.Header.Set("Accept", "application/json")
	res, err := id.HTTPClient().Do(req)
	if err != nil {
		out.Reason = err.Error()
		return out
	}
	defer func() { _ = res.Body.Close() }()
	out.Status = res.StatusCode
	if res.StatusCode < http.StatusMultipleChoices {
		return out
	}
	var status struct {
		Message string `json:"message"`
		Details struct {
			Name string `json:"name"`
		} `json:"details"`
	}
	data, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	_ = json.Unmarshal(data, &status) // without a message there is the status
	out.Reason = cmp.Or(status.Message, fmt.Sprintf("%d %s", res.StatusCode, http.StatusText(res.StatusCode)))
	// Of an object that is missing the server gives the name; of a kind it knows nothing at all.
	out.NoKind = res.StatusCode == http.StatusNotFound && status.Details.Name == ""
	return out
}

// clock collects times that have passed.
func (c *collector) clock() {
	f := &c.facts.Clock
	f.Built, f.Newest = c.opt.Built, c.facts.Identity.NotBefore
	for _, file := range c.facts.Files {
		if file.Kind != plan.Regular {
			continue
		}
		for _, cert := range pki.Read(file.Data).Certs {
			if cert.NotBefore.After(f.Newest) {
				f.Newest = cert.NotBefore
			}
		}
	}
}
