// SPDX-License-Identifier: Apache-2.0

package disk

import "testing"

func TestAFileTakesOnlyTheTypeOfItsDirectory(t *testing.T) {
	for _, c := range []struct{ file, dir, want string }{
		{"system_u:object_r:etc_runtime_t:s0\x00", "unconfined_u:object_r:etc_t:s0:c1,c2\x00",
			"system_u:object_r:etc_t:s0\x00"},
		{"system_u:object_r:etc_t:s0:c1,c2\x00", "system_u:object_r:kubernetes_file_t:s0\x00",
			"system_u:object_r:kubernetes_file_t:s0:c1,c2\x00"},
		{"system_u:object_r:etc_runtime_t\x00", "system_u:object_r:etc_t\x00", "system_u:object_r:etc_t\x00"},
		{"system_u:object_r:etc_t:s0\x00", "system_u:object_r:etc_t\x00", ""},
		{"", "system_u:object_r:etc_t:s0\x00", ""},
		{"system_u:object_r:etc_t:s0\x00", "", ""},
		{"unlabeled", "unlabeled", ""},
	} {
		if got := string(retyped([]byte(c.file), []byte(c.dir))); got != c.want {
			t.Errorf("%q in %q becomes %q, want %q", c.file, c.dir, got, c.want)
		}
	}
}
