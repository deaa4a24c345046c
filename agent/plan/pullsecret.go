// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/node-cert-agent/node-cert-agent/agent/pki"
)

// login is one value of auths.
type login struct {
	Auth          *string `json:"auth"`
	Username      string  `json:"username"`
	Password      string  `json:"password"`
	IdentityToken string  `json:"identitytoken"`
	RegistryToken string  `json:"registrytoken"`
}

// checkPullSecret accepts a docker config that logs in to at least one registry. The error names
// neither a registry nor anything else of the content. Whoever reads the file reads it as JSON with
// names in any case, and an object with a name twice differently from one to the next: such is
// refused, and so is what names a program to run.
//
// Source: containers-auth.json(5); podman and rpm-ostree run docker-credential-NAME of credHelpers.
func checkPullSecret(data []byte) error {
	if len(data) > pki.MaxBytes {
		return fmt.Errorf("%d bytes, more than %d", len(data), pki.MaxBytes)
	}
	if !jsontext.Value(data).IsValid() {
		return errors.New("is not JSON, or has a name twice")
	}
	var config map[string]json.RawMessage
	if json.Unmarshal(data, &config) != nil || config == nil {
		return errors.New("is not a JSON object")
	}
	for name := range config {
		switch lower := strings.ToLower(name); {
		case lower == "credhelpers" || lower == "credsstore":
			return fmt.Errorf("has %s, which names a program to run", lower)
		case lower == "auths" && name != lower:
			return errors.New("has auths in other letters")
		}
	}
	var auths map[string]json.RawMessage
	if json.Unmarshal(config["auths"], &auths) != nil || len(auths) == 0 {
		return errors.New("has no object auths with a registry in it")
	}
	for i, name := range slices.Sorted(maps.Keys(auths)) {
		if err := checkLogin(auths[name]); err != nil {
			return fmt.Errorf("registry %d of auths, in the order of names, %v", i+1, err)
		}
	}
	return nil
}

func checkLogin(data []byte) error {
	var l login
	if json.Unmarshal(data, &l) != nil || data[0] != '{' {
		return errors.New("is not an object of texts")
	}
	switch {
	case l.Auth != nil:
		user, err := base64.StdEncoding.DecodeString(*l.Auth)
		if err != nil || bytes.IndexByte(user, ':') < 1 {
			return errors.New("has an auth that is not user:password in base64")
		}
	case l.IdentityToken == "" && l.RegistryToken == "" && (l.Username == "" || l.Password == ""):
		return errors.New("has no credential")
	}
	return nil
}
