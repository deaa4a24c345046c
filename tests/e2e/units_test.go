// SPDX-License-Identifier: Apache-2.0

//go:build real

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/audit"
	"github.com/node-cert-agent/node-cert-agent/agent/report"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/cluster"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/controlplane/controllerconfig"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/host"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/testpki"
)

const updateCATrust = "node-cert-agent-update-ca-trust.service"

// fragment is a configuration with these fields and units, as flow mappings.
func fragment(files, units, actions string) string {
	return "apiVersion: config.node-cert-agent.io/v1alpha1\nfiles: {" + files + "}\nunits: {" + units + "}\nactions: {" +
		actions + "}\ntrust: {holdRemovals: 0s}\nwatch: {retryJitter: 200ms, retryMax: 1s}\n"
}

// services puts units on the host, by name.
func services(texts map[string]string) host.Options {
	files := map[string]host.File{}
	for name, text := range texts {
		files["/etc/systemd/system/"+name] = host.File{Data: []byte(text)}
	}
	return host.Options{Files: files}
}

func (n *node) unit(name string) report.Unit {
	for _, u := range n.Status().Units {
		if u.Name == name {
			return u
		}
	}
	return report.Unit{}
}

func (n *node) show(property, unit string) string {
	return n.Run("systemctl", "show", "-P", property, unit)
}

// rotate publishes so many different bundles, evenly over d, and returns the last when the agent has dealt with it:
// before, the units may be shown as they stood with another.
func (n *node) rotate(times int, d time.Duration) (last []byte) {
	n.T.Helper()
	version := ""
	tick := time.NewTicker(d / time.Duration(times))
	defer tick.Stop()
	for i := range times {
		last = testpki.NewCA(fmt.Sprint("rotation ", i))
		version = n.patch(controllerconfig.Spec{KubeAPIServerServingCAData: last, AdditionalTrustBundle: last})
		<-tick.C
	}
	n.awaitVersion(version)
	return last
}

const trustField = `additionalTrustBundle: {path: "/usr/local/share/ca-certificates/{sha256}.crt", onChange: [` +
	updateCATrust + `]}`

func TestTenRotationsInFiveSecondsLeaveNoUnitFailed(t *testing.T) {
	n, _ := started(t, cluster.Options{Config: fragment("kubeAPIServerServingCAData: {onChange: [reader.service]}, "+
		trustField,
		"reader.service: {verb: try-restart}, "+updateCATrust+": {verb: restart}", "batchWindow: 0s, randomizedDelay: 0s")})
	last := n.rotate(10, 5*time.Second)
	n.wantFile(cluster.KubeletCA, last)
	n.awaitUnit(cluster.Reader, "up to date")
	n.awaitUnit(updateCATrust, "up to date")
	n.Await("the restart with the last bundle",
		func() bool { return string(n.File("/run/reader.loaded")) == string(last) })
	for _, unit := range []string{cluster.Reader, updateCATrust} {
		if got := n.show("ActiveState", unit) + " " + n.show("Result", unit); got != "active success" {
			t.Errorf("%s is %s", unit, got)
		}
	}
	// Without a hold the file of the rotation before goes while update-ca-certificates reads the directory, and this
	// program ends with an error then. It is run again, so that the host is none the worse for it. Reader has one file.
	if n.Records(audit.UnitActionFailed, "NODECERT_UNIT="+cluster.Reader) != 0 {
		t.Error("an action failed")
	}
	if store := string(n.File("/etc/ssl/certs/ca-certificates.crt")); !strings.Contains(store,
		strings.TrimSpace(string(last))) {
		t.Error("the last certificate is not in the host's trust store")
	}
}

func TestTenChangesInTwoSecondsAreOneActionPerUnit(t *testing.T) {
	n, _ := started(t, cluster.Options{Config: fragment("kubeAPIServerServingCAData: {onChange: [reader.service]}, "+
		trustField,
		"reader.service: {verb: reload}, "+updateCATrust+": {verb: restart}", "batchWindow: 10s, randomizedDelay: 0s")})
	n.awaitUnit(updateCATrust, "up to date")
	rebuilt := func() int { return n.Records(audit.UnitActionDone, "NODECERT_UNIT="+updateCATrust) }
	reloads, runs := n.Loads(n.Ctx, "reload"), rebuilt()
	last := n.rotate(10, 2*time.Second)
	n.Await("the reload with the last bundle", func() bool { return string(n.File("/run/reader.loaded")) == string(last) })
	n.awaitUnit(cluster.Reader, "up to date")
	n.awaitUnit(updateCATrust, "up to date")
	n.wantLoads("reload", reloads+1)
	if got := rebuilt() - runs; got != 1 {
		t.Errorf("the trust store was rebuilt %d times", got)
	}
}

func TestAUnitThatRestartsByItselfAfterTheChangeIsAdoptedAndLeftAlone(t *testing.T) {
	for _, verb := range []string{"reload", "try-restart"} {
		t.Run(verb, func(t *testing.T) {
			n, _ := started(t, cluster.Options{Config: fragment("kubeAPIServerServingCAData: {onChange: [reader.service]}",
				"reader.service: {verb: "+verb+"}", "batchWindow: 20s, randomizedDelay: 0s")})
			paid, adopted := n.Records(audit.UnitActionDone, "NODECERT_UNIT="+cluster.Reader), n.Records(audit.UnitAdopted)
			b := testpki.NewCA("b")
			n.patch(kubeletCA(b))
			n.AwaitFile(cluster.KubeletCA, b)
			n.awaitUnit(cluster.Reader, "pending")
			n.Await("more than a second after the change", func() bool {
				info, err := os.Stat(n.Host.Path(cluster.KubeletCA))
				return err == nil && time.Since(info.ModTime()) > 1200*time.Millisecond
			})
			n.Run("systemctl", "restart", cluster.Reader) // as somebody else does
			run := n.show("InvocationID", cluster.Reader)
			n.awaitVersion(n.patch(controllerconfig.Spec{RootCAData: b}))
			n.awaitUnit(cluster.Reader, "up to date")
			n.Await("the record", func() bool { return n.Records(audit.UnitAdopted) > adopted })
			if n.show("InvocationID", cluster.Reader) != run || n.Records(audit.UnitActionDone,
				"NODECERT_UNIT="+cluster.Reader) != paid {
				t.Error("it was acted on although it had read the file")
			}
		})
	}
}

func TestARestartThatDragsTheKubeletAlongHasToBeAllowedForBoth(t *testing.T) {
	o := cluster.Options{Host: services(map[string]string{
		"crio.service":    "[Service]\nExecStart=/bin/sleep infinity\n",
		"kubelet.service": "[Unit]\nRequires=crio.service\nAfter=crio.service\n[Service]\nExecStart=/bin/sleep infinity\n",
	})}
	config := func(more string) string {
		return fragment("kubeAPIServerServingCAData: {onChange: [crio.service]}", "crio.service: {verb: try-restart"+more+"}",
			"batchWindow: 200ms, randomizedDelay: 0s")
	}
	o.Config = config("")
	n := start(t, o)
	n.Run("systemctl", "start", "crio.service", "kubelet.service")
	runs := func() string {
		return n.show("InvocationID", "crio.service") + n.show("InvocationID", "kubelet.service")
	}
	before := runs()
	ca := testpki.NewCA("a")
	n.create(kubeletCA(ca))
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitFile(cluster.KubeletCA, ca) // trust is written, whatever becomes of the unit
	n.awaitUnit("crio.service", "refused")
	const line = "units: {crio.service: {alsoAffects: [kubelet.service]}}"
	if why := n.unit("crio.service").Reason; !strings.Contains(why, line) {
		t.Errorf("refused because %q, want the line %q", why, line)
	}
	n.AwaitRecord(audit.UnitActionRefused, "NODECERT_UNIT=crio.service")
	if runs() != before || n.Records(audit.UnitActionDispatched) != 0 {
		t.Error("something was restarted")
	}

	n.Must(n.Host.PutFile(cluster.Fragment, host.File{Data: []byte(config(", alsoAffects: [kubelet.service]"))}))
	n.patch(kubeletCA(testpki.NewCA("b")))
	e := n.AwaitRecord(audit.UnitActionDone, "NODECERT_UNIT=crio.service")
	if e["NODECERT_ALSO_AFFECTS"] != "kubelet.service" {
		t.Errorf("the record is %v", e)
	}
	n.awaitUnit("crio.service", "up to date")
	n.Await("both restarts", func() bool {
		return n.show("InvocationID", "crio.service") != before[:32] &&
			n.show("InvocationID", "kubelet.service") != before[32:] &&
			n.Run("sh", "-c", "systemctl is-active crio.service kubelet.service || true") == "active\nactive"
	})
}

func TestABusThatRestartsIsFoundAgain(t *testing.T) {
	n, _ := started(t, cluster.Options{})
	n.Run("systemctl", "restart", "dbus.service")
	b := testpki.NewCA("b")
	n.patch(kubeletCA(b))
	n.Await("the reload over the new bus", func() bool { return string(n.File("/run/reader.loaded")) == string(b) })
	n.awaitUnit(cluster.Reader, "up to date")
}

// slowReader reloads for as long as nobody writes to a pipe.
const slowReader = "[Service]\nExecStartPre=/bin/sh -c 'test -p /run/go || mkfifo /run/go'\nExecStart=/bin/sleep " +
	"infinity\n" +
	"ExecReload=/bin/sh -c 'echo begun >>/run/slow.log; read line </run/go; cp " + cluster.KubeletCA +
	" /run/slow.loaded'\nTimeoutStartSec=600\n"

func slowOptions(timeout string) cluster.Options {
	o := cluster.Options{Host: services(map[string]string{"slow.service": slowReader})}
	o.Config = fragment("kubeAPIServerServingCAData: {onChange: [reader.service, slow.service]}",
		"reader.service: {verb: reload}, slow.service: {verb: reload}",
		"batchWindow: 200ms, randomizedDelay: 0s, timeout: "+timeout)
	return o
}

// startedSlow is started with slow.service running too, and having loaded.
func startedSlow(t *testing.T, timeout string) *node {
	n := start(t, slowOptions(timeout))
	n.create(kubeletCA(testpki.NewCA("a")))
	n.Run("systemctl", "start", "slow.service")
	n.Must(n.StartAgent(n.Ctx))
	n.Await("the first slow reload", func() bool { return n.begun() == 1 })
	n.letGo()
	n.awaitUnit("slow.service", "up to date")
	return n
}

func (n *node) begun() int { return strings.Count(string(n.File("/run/slow.log")), "begun\n") }
func (n *node) letGo()     { n.Run("sh", "-c", "echo go >/run/go") }

func TestASlowReloadIsReportedDelaysNobodyAndIsNotRepeated(t *testing.T) {
	n := startedSlow(t, "1s")
	b := testpki.NewCA("b")
	n.patch(kubeletCA(b))
	n.awaitUnit("slow.service", "overdue")
	n.AwaitRecord(audit.UnitActionOverdue, "NODECERT_UNIT=slow.service")
	n.Await("the other unit's reload", func() bool { return string(n.File("/run/reader.loaded")) == string(b) })
	n.awaitUnit(cluster.Reader, "up to date")
	n.letGo()
	n.awaitUnit("slow.service", "up to date")
	if n.begun() != 2 || string(n.File("/run/slow.loaded")) != string(b) {
		t.Errorf("%d slow reloads", n.begun())
	}
}

func TestAnAgentThatDiesInTheMiddleOfAJobWaitsForItAndActsOnceMore(t *testing.T) {
	n := startedSlow(t, "60s")
	b := testpki.NewCA("b")
	n.patch(kubeletCA(b))
	n.Await("the job", func() bool { return n.begun() == 2 })
	n.Run("systemctl", "kill", "-s", "KILL", "node-cert-agent.service")
	n.Await("the next agent to see the job", func() bool {
		return strings.Contains(n.unit("slow.service").Reason, "has a job")
	})
	if n.begun() != 2 {
		t.Errorf("%d slow reloads while one runs", n.begun())
	}
	n.letGo()
	n.Await("the action whose outcome nobody saw", func() bool { return n.begun() == 3 })
	n.letGo()
	n.awaitUnit("slow.service", "up to date")
	if n.begun() != 3 {
		t.Errorf("%d slow reloads", n.begun())
	}
}

func TestABusThatRestartsInTheMiddleOfAJobCostsAtMostOneMoreReload(t *testing.T) {
	n := startedSlow(t, "60s")
	n.patch(kubeletCA(testpki.NewCA("b")))
	n.Await("the job", func() bool { return n.begun() == 2 })
	n.Run("systemctl", "restart", "dbus.service")
	n.Await("the agent to see the job", func() bool {
		return strings.Contains(n.unit("slow.service").Reason, "has a job")
	})
	n.letGo()
	n.Await("the action whose outcome nobody saw", func() bool { return n.begun() == 3 })
	n.letGo()
	n.awaitUnit("slow.service", "up to date")
	if breaker := n.unit("slow.service").BreakerOpened; !breaker.IsZero() {
		t.Errorf("the breaker opened at %v", breaker)
	}
}

func TestAReloadThatFailsAgainAndAgainOpensABreakerThatShowsEverywhere(t *testing.T) {
	o := cluster.Options{Host: services(map[string]string{"broken.service": "[Service]\nExecStart=/bin/sleep " +
		"infinity\nExecReload=/usr/bin/test -e /run/repaired\n"})}
	o.Config = fragment("kubeAPIServerServingCAData: {onChange: [broken.service, reader.service]}",
		"broken.service: {verb: reload}, reader.service: {verb: reload}", "batchWindow: 200ms, randomizedDelay: 0s")
	o.Bootstrap = true // only an agent with an identity of its own reports to the cluster
	n := start(t, o)
	n.Must(n.Plane.InstallShipped(n.Ctx))
	n.create(kubeletCA(testpki.NewCA("a")))
	n.Must(n.MakeToken(n.Ctx, "token1"))
	n.Must(n.PutToken("10-token", "token1"))
	n.Run("systemctl", "start", "broken.service")
	n.Must(n.StartAgent(n.Ctx))
	n.AwaitApproved()
	n.awaitUnit("broken.service", "breaker open")
	n.awaitUnit(cluster.Reader, "up to date")
	n.AwaitRecord(audit.UnitBreaker, "NODECERT_UNIT=broken.service")
	if got := n.Records(audit.UnitActionFailed, "NODECERT_UNIT=broken.service"); got != 5 {
		t.Errorf("%d failures", got)
	}
	n.awaitMetric(`node_cert_agent_unit_breaker_open{unit="broken.service"} 1`)
	if s := n.show("StatusText", "node-cert-agent.service"); !strings.Contains(s,
		"reload broken.service fails again and again") {
		t.Errorf("the status line is %q", s)
	}
	n.Await("the state object", func() bool {
		out, _ := n.Plane.Kubectl(n.Ctx, "get", "nodecertificatestates", "node", "-o",
			"jsonpath={.status.breaker.unit} {.status.breaker.reason}")
		return strings.HasPrefix(out, "broken.service reload broken.service: job-failed")
	})
	n.Run("systemctl", "kill", "-s", "KILL", "node-cert-agent.service") // which is no repair
	n.Await("the next agent to leave it alone", func() bool {
		u := n.unit("broken.service")
		return u.State == "breaker open" && !u.BreakerOpened.IsZero() && strings.HasPrefix(u.Reason, "before this start")
	})
	if got := n.Records(audit.UnitActionFailed, "NODECERT_UNIT=broken.service"); got != 5 {
		t.Errorf("%d failures after the agent was killed", got)
	}
	n.Run("touch", "/run/repaired")
	n.patch(kubeletCA(testpki.NewCA("b"))) // what changes gives it another chance
	n.awaitUnit("broken.service", "up to date")
	n.awaitMetric(`node_cert_agent_unit_breaker_open{unit="broken.service"} 0`)
}
