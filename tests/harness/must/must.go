// SPDX-License-Identifier: Apache-2.0

// Package must ends a test at the first error of what the test needs and is not about.
//
// It says nothing beside the error, which names operation and subject by itself; what a test is about
// it checks, and reports in its own words.
package must

import "testing"

// Do ends the test if there is an error.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
