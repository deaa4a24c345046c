// SPDX-License-Identifier: Apache-2.0

package replace

import (
	"bytes"
	"fmt"
	"path"
	"regexp"

	"github.com/node-cert-agent/node-cert-agent/agent/disk"
	"github.com/node-cert-agent/node-cert-agent/agent/kubeconfig"
	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

// half is a file of a pair, and the part of it that is ours: all of it, or what an editor finds. The order
// of halves is that of the renames.
type half struct {
	path   string
	editor *disk.Editor
}

var ids = regexp.MustCompile(`^[a-z0-9]+([./-][a-z0-9]+)*$`)

// halves lists the files of a pair, or says why it is none.
func (p Pair) halves() ([]half, error) {
	var all []half
	switch {
	case len(p.ID) > 64 || !ids.MatchString(p.ID):
		return nil, fmt.Errorf("pair %q: not a name of a pair", p.ID)
	case p.Kubeconfig != "" && p.Key == "" && p.Certificate == "":
		all = []half{{path: p.Kubeconfig, editor: &clientData}}
	case p.Kubeconfig == "" && p.Key != p.Certificate:
		all = []half{{path: p.Key}, {path: p.Certificate}}
	default:
		return nil, fmt.Errorf("pair %s: neither two files nor a kubeconfig", p.ID)
	}
	for _, h := range all {
		if !path.IsAbs(h.path) || path.Clean(h.path) != h.path {
			return nil, fmt.Errorf("pair %s: %q is not an absolute, clean path", p.ID, h.path)
		}
	}
	return all, nil
}

func paths(halves []half) (all []string) {
	for _, h := range halves {
		all = append(all, h.path)
	}
	return all
}

// partsOf are our parts of the files that are held.
func partsOf(h *disk.Held, halves []half) (parts [][]byte, err error) {
	for i, f := range halves {
		part := h.Data(i)
		if f.editor != nil {
			if part, err = f.editor.Get(part); err != nil {
				return nil, fmt.Errorf("%s: %w", f.path, err)
			}
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// content is what the parts hold, and parts the inverse.
func (p Pair) content(parts [][]byte) (Content, error) {
	if p.Kubeconfig == "" {
		return Content{Key: secret.New(parts[0]), Certificate: parts[1]}, nil
	}
	certificate, key, err := split(parts[0])
	if err != nil {
		return Content{}, err
	}
	return Content{Certificate: certificate, Key: secret.New(key)}, nil
}

func (p Pair) parts(c Content) [][]byte {
	if p.Kubeconfig == "" {
		return [][]byte{c.Key.Reveal(), c.Certificate}
	}
	return [][]byte{join(c.Certificate, c.Key.Reveal())}
}

// stage puts the parts for which it is asked beside their files.
func stage(h *disk.Held, halves []half, parts [][]byte, asked func(int) bool) (err error) {
	for i, f := range halves {
		if !asked(i) {
			continue
		}
		data := parts[i]
		if f.editor != nil {
			if data, err = f.editor.Set(h.Data(i), data); err != nil {
				return fmt.Errorf("%s: %w", f.path, err)
			}
		}
		if err := h.Stage(i, data); err != nil {
			return err
		}
	}
	return nil
}

// clientData is a kubeconfig's part: certificate and key as one text, with the length of the first before it.
var clientData = disk.Editor{
	Get: func(file []byte) ([]byte, error) {
		certificate, key, err := kubeconfig.Client(file)
		if err != nil {
			return nil, err
		}
		return join(certificate, key), nil
	},
	Set: func(file, part []byte) ([]byte, error) {
		certificate, key, err := split(part)
		if err != nil {
			return nil, err
		}
		return kubeconfig.SetClient(file, certificate, key)
	},
}

func join(certificate, key []byte) []byte {
	return fmt.Appendf(nil, "%d\n%s%s", len(certificate), certificate, key)
}

func split(part []byte) (certificate, key []byte, err error) {
	var n int
	head, rest, _ := bytes.Cut(part, []byte("\n"))
	if _, err := fmt.Sscanf(string(head), "%d", &n); err != nil || n < 0 || n > len(rest) {
		return nil, nil, fmt.Errorf("client data of %d bytes cannot be told apart", len(part))
	}
	return rest[:n], rest[n:], nil
}
