// SPDX-License-Identifier: Apache-2.0

// Command objects writes the cases of the corpus that come from the table in package objects into
// tests/harness/objects/testdata, each with the outcome that stands there already. It is run after the table
// was changed; a test finds out if it was not. New cases begin with an empty outcome: the test prints
// what it should be, and a person decides whether that is right.
package main

import (
	"fmt"
	"os"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/objects"
)

func main() {
	if err := objects.Write(nil); err != nil {
		fmt.Fprintln(os.Stderr, "objects:", err)
		os.Exit(1)
	}
}
