// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"slices"
	"strings"
	"testing"
)

func TestOnlyTheRequestsThatCountAreCounted(t *testing.T) {
	const log = `{"stage":"ResponseStarted","verb":"watch","objectRef":{"resource":"controllerconfigs"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"watch","objectRef":{"resource":"controllerconfigs"},"responseStatus":{"code":200}}
{"stage":"ResponseStarted","verb":"watch","objectRef":{"resource":"controllerconfigs"},"responseStatus":{"code":403}}
{"stage":"ResponseComplete","verb":"watch","objectRef":{"resource":"controllerconfigs"},"responseStatus":{"code":403}}
{"stage":"ResponseComplete","verb":"patch","objectRef":{"resource":"nodecertificatestates"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"patch","objectRef":{"resource":"nodecertificatestates"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"get","requestURI":"/version?x=y","responseStatus":{"code":200}}
{"stage":"Respo`
	c, err := count(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"2 patch nodecertificatestates 200", "1 get /version 200", "1 watch controllerconfigs 200",
		"1 watch controllerconfigs 403"}
	if got := c.Lines(); !slices.Equal(got, want) {
		t.Errorf("counted are %q", got)
	}
	if all, but := c.Total(), c.Without("nodecertificatestates").Total(); all != 5 || but != 3 {
		t.Errorf("there are %d, and %d but for reports", all, but)
	}
	if got := (Counts{}).String(); got != "none" {
		t.Errorf("of nothing it says %q", got)
	}
	if _, err := count(strings.NewReader("no audit log\n")); err == nil {
		t.Error("what is no audit log was counted")
	}
}
