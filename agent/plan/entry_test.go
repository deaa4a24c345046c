// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"
)

func TestAnEntryOfNothingIsRefused(t *testing.T) {
	if _, err := (Row{ID: RootCAData}).Entry("", nil, time.Time{}); err == nil {
		t.Error("no bytes became a file")
	}
}

func TestAnEntryThatIsNoBundleIsRefused(t *testing.T) {
	data := []byte("hello")
	if _, err := (Row{ID: RootCAData}).Entry("", data[:4], time.Time{}); err == nil {
		t.Error("text became a file")
	}
	if string(data) != "hello" {
		t.Errorf("the newline was written into the caller's memory: %q", data)
	}
}
