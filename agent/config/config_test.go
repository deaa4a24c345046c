// SPDX-License-Identifier: Apache-2.0

package config

import "testing"

func TestLoadWithoutFragmentsGivesTheStandaloneProfile(t *testing.T) {
	s, err := Load(Options{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", s)
	if len(s.Policy.Rows) != 6 {
		t.Fatalf("rows: %d", len(s.Policy.Rows))
	}
}
