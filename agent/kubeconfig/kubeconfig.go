// SPDX-License-Identifier: Apache-2.0

// Package kubeconfig reads and changes values of a kubeconfig that somebody else made: the CA data of its
// current cluster, and the client certificate and key of its current context's user. It is pure: bytes in,
// bytes out.
//
// It promises that every byte outside these values stays as it was (comments, order, unknown fields,
// line ends), which is why it edits text at a position and does not encode YAML; that the result
// parses to the same document but for them, which it checks each time; and that a change made
// twice is the same as made once. Whatever leaves a doubt about where a value is, or about who else
// would read it differently, is refused: JSON is fine, anchors and merge keys on the way are not.
//
// The files hold credentials. No error repeats a byte of them, names included; what the YAML parser
// says is cut down to its line number, because it quotes.
//
// Sources: k8s.io/client-go tools/clientcmd/api/v1 types.go, and validation.go for which cluster
// counts and that data wins over a path; YAML 1.2.2 chapters 5.4 (line breaks) and 7 (flow scalars).
package kubeconfig

import (
	"encoding/base64"
	"errors"
	"fmt"
)

// maxBytes is the largest kubeconfig, in bytes, that is looked at or made. Those of a cluster have a
// few dozen KiB.
const maxBytes = 1 << 20

// CA returns the CA data of the current cluster as PEM with a final newline, or nothing if what is
// there is not base64: that can be replaced, and holds no certificate. An error is the reason why the
// file cannot be edited, as one line without content.
func CA(file []byte) ([]byte, error) {
	s, err := find(file)
	if err != nil {
		return nil, err
	}
	if _, err := s.replace(file, probe); err != nil {
		return nil, err
	}
	ca, err := base64.StdEncoding.DecodeString(s.node.Value)
	if err != nil {
		return nil, nil
	}
	if n := len(ca); n > 0 && ca[n-1] != '\n' {
		ca = append(ca, '\n')
	}
	return ca, nil
}

// probe is a value as CA data begin, to see whether one can be put in place.
const probe = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t"

// SetCA returns the file with its current cluster's CA data replaced by ca, which is not judged. The
// argument stays as it is. An error is the reason for which it cannot be done, as one line without
// content.
func SetCA(file, ca []byte) ([]byte, error) {
	if len(ca) == 0 {
		return nil, errors.New("no CA data to put in place")
	}
	s, err := find(file)
	if err != nil {
		return nil, err
	}
	out, err := s.replace(file, base64.StdEncoding.EncodeToString(ca))
	if err != nil {
		return nil, err
	}
	if len(out) > maxBytes {
		return nil, fmt.Errorf("would have %d bytes, more than %d", len(out), maxBytes)
	}
	return out, nil
}
