// SPDX-License-Identifier: Apache-2.0

// Package must ends a test at the first error of what the test needs and is not about.
//
// It says nothing beside the error, which names operation and subject by itself. What a test is about, it
// checks and reports in its own words.
package must

import "testing"

// Do ends the test if there is an error.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// OK panics if there is an error. It is for fixtures: these are made without a test at hand, and fail only
// where their own code is wrong.
func OK(err error) {
	if err != nil {
		panic(err)
	}
}
