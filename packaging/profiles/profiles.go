// SPDX-License-Identifier: Apache-2.0

// Package profiles carries the profiles inside the binary, so that a host without
// /usr/share/node-cert-agent, a test and a plain-mode run all start from the same defaults as an
// installed one. It holds no code; agent/config reads the files.
package profiles

import "embed"

// Base is the profile whose values every other profile starts from. It sets every key that has a
// fixed name.
const Base = "standalone"

// FS holds one <profile>.yaml per profile, in the format of a configuration fragment.
//
//go:embed *.yaml
var FS embed.FS
