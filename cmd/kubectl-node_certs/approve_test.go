// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/node-cert-agent/node-cert-agent/cluster/approver"
	"github.com/node-cert-agent/node-cert-agent/cluster/approver/verdict"
)

func TestForceDoesNotApproveWhatCanNeverBecomeRight(t *testing.T) {
	for _, test := range []struct {
		v             verdict.Verdict
		plain, forced string // what is said; empty if it is approved
	}{
		{verdict.Verdict{Action: verdict.Approve}, "", ""},
		{verdict.Verdict{Action: verdict.Pending, Check: verdict.Live}, "--force approves it", ""},
		{verdict.Verdict{Action: verdict.Pending, Check: verdict.Age}, "too old", "too old"},
		{verdict.Verdict{Action: verdict.Deny, Check: verdict.Form}, "can never become right", "can never become right"},
		{verdict.Verdict{Action: verdict.Ignore, Fact: "another signer"}, "another signer", "another signer"},
	} {
		for force, want := range map[bool]string{false: test.plain, true: test.forced} {
			err := approval{force: force}.refuse(test.v)
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%+v, force %v: %v, want %q", test.v, force, err, want)
			}
		}
	}
}

func TestARequestIsShownWithWhatItAsksFor(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	seconds := int32(7 * 24 * 3600)
	x := approver.Examination{Request: &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "r", CreationTimestamp: metav1.NewTime(now.Add(-time.Minute))},
		Spec: certificates.CertificateSigningRequestSpec{Username: "system:bootstrap:abcdef\x1b[2J",
			ExpirationSeconds: &seconds}},
		Claim:   &verdict.Claim{Node: "a", User: "system:bootstrap:abcdef", Class: verdict.Token, Bound: true, PublicKey: "00ff"},
		Verdict: verdict.Verdict{Action: verdict.Pending, Check: verdict.Inventory, Fact: "there is no node a"}}
	var out bytes.Buffer
	printRequest(&out, x, now)
	for _, want := range []string{"request         r\n", `abcdef\x1b[2J`, "made            60s ago\n", "for node        a\n",
		"the bootstrap token abcdef, for this node only\n", "sha256:00ff\n", "lifetime        7d\n",
		"would leave it pending: inventory: there is no node a\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it prints\n%s, without %q", out.String(), want)
		}
	}
}
