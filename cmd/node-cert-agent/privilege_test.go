// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/node-cert-agent/node-cert-agent/tests/harness/kubeconfigs"
)

// rightsOf says of each subcommand, with arguments that it accepts, whether it stays root where root starts
// it. A new one has to be entered here. What stays root must not act on anything that the service's user wrote.
var rightsOf = map[string]struct {
	args      []string
	staysRoot bool
}{
	"writer":        {nil, true},
	"reloader":      {nil, true},
	"writer-dropin": {nil, true},
	"signer":        {nil, true},
	"status":        {nil, true}, // prints one file, escaped
	"renew":         {nil, true}, // the same
	"version":       {nil, true},
	"completion":    {[]string{"bash"}, true},
	"man":           {nil, true},
	"help":          {nil, true},

	"run":       {nil, false},
	"bootstrap": {nil, false},
	"diff":      {nil, false},
	"apply":     {[]string{"--revert"}, false},
	"pause":     {[]string{"--for", "1h", "a reason"}, false},
	"resume":    {nil, false},
	"check":     {nil, false}, // after what only root may see
	"certs":     {nil, false},
	"reset":     {nil, false},
}

// more are the other ways of subcommands that have several.
var more = [][]string{{"apply", "-f", "INPUT"}, {"apply", "--now"}, {"diff", "-f", "INPUT"},
	{"diff", "--kubeconfig", "KUBECONFIG"}, {"certs", "--kubeconfig", "KUBECONFIG"}, {"run", "--kubeconfig", "KUBECONFIG"}}

func TestWhichSubcommandsStayRoot(t *testing.T) {
	all := root()
	all.InitDefaultCompletionCmd()
	all.InitDefaultHelpCmd()
	for _, c := range all.Commands() {
		rights, known := rightsOf[c.Name()]
		if !known {
			t.Errorf("whether %s stays root is not said", c.Name())
			continue
		}
		startedByRoot(t, append([]string{c.Name()}, rights.args...), rights.staysRoot)
	}
	for _, args := range more {
		startedByRoot(t, args, false)
	}
}

// startedByRoot runs a command up to where it would become the service user, and fails if it does not, or if
// a file of that user was opened before. The status may be: it is a bounded file of plain JSON, not followed
// anywhere, and all that is taken from it is validated or escaped.
func startedByRoot(t *testing.T, args []string, staysRoot bool) {
	t.Helper()
	r := newTree(t)
	for _, file := range []string{stateDir + "/identity.pem", stateDir + "/state.json",
		stateDir + "/operator/applied.json", runtimeDir + "/status.json"} {
		if err := os.MkdirAll(filepath.Dir(r.path(file)), 0o700); err != nil {
			t.Fatal(err)
		}
		save(t, r.path(file), "{}")
	}
	save(t, r.path("/input"), "apiVersion: machineconfiguration.openshift.io/v1\nkind: ControllerConfig\nspec: {}")
	opened := opens(t, r.path(stateDir), r.path(stateDir+"/operator"))
	given := slices.Clone(args)
	for i, a := range given {
		given[i] = strings.NewReplacer("INPUT", r.path("/input"), "KUBECONFIG", r.kubeconfig).Replace(a)
	}
	gaveUp := errors.New("it would give up being root here")
	cmd := commands(&flags{become: func() error {
		if names := opened(); len(names) > 0 {
			t.Errorf("%v: as root it opens %v", args, names)
		}
		return gaveUp
	}})
	cmd.SetArgs(append(given, "--root", r.root))
	cmd.SetOut(io.Discard)
	cmd.SetErr(io.Discard)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := cmd.ExecuteContext(ctx); errors.Is(err, gaveUp) == staysRoot {
		t.Errorf("%v: stays root: want %v; it ends with %v", args, staysRoot, err)
	}
}

// opens watches directories, and tells which files in them were opened since.
func opens(t *testing.T, directories ...string) (since func() []string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	for _, d := range directories {
		if _, err := unix.InotifyAddWatch(fd, d, unix.IN_OPEN); err != nil {
			t.Fatal(err)
		}
	}
	return func() (names []string) {
		buf := make([]byte, 64<<10)
		n, _ := unix.Read(fd, buf)
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			mask, size := le(buf[at+4:]), int(le(buf[at+12:]))
			name := strings.TrimRight(string(buf[at+unix.SizeofInotifyEvent:][:size]), "\x00")
			if mask&unix.IN_ISDIR == 0 {
				names = append(names, name)
			}
			at += unix.SizeofInotifyEvent + size
		}
		return names
	}
}

func le(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// The kernel opens the memory of a process again when it changes its user, as fs.suid_dumpable says.
func TestMemoryStaysClosedAfterAChangeOfUser(t *testing.T) {
	if os.Getenv("NODE_CERT_AGENT_CHANGES_USER") != "" {
		// As after a change of user where systemd-coredump set fs.suid_dumpable to 2.
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
		_ = becomeUser(os.Getuid(), os.Getgid()) // without privileges the group list cannot be set
		if open, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || open != 0 {
			t.Errorf("dumpable is %d, %v", open, err)
		}
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestMemoryStaysClosedAfterAChangeOfUser$")
	cmd.Env = append(os.Environ(), "NODE_CERT_AGENT_CHANGES_USER=yes")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestDiffWaitsForNoPipe(t *testing.T) {
	r := newTree(t)
	pipe := r.path("/pipe")
	if err := os.MkdirAll(r.path(stateDir), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, r.path(stateDir + "/identity.pem")} {
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	named := r.path("/names-a-pipe")
	save(t, named, strings.Replace(string(kubeconfigs.Token(r.api.URL, nil, marker)), "}}",
		", certificate-authority: "+pipe+"}}", 1))
	for _, args := range [][]string{{"diff"}, {"diff", "--kubeconfig", pipe}, {"diff", "--kubeconfig", named}} {
		ended := make(chan outcome, 1)
		go func() { ended <- r.command(args...) }()
		select {
		case o := <-ended:
			if o.code != exitNoID || !strings.Contains(o.stderr, "not a regular file") && len(args) > 1 {
				t.Errorf("%v: %+v", args, o)
			}
		case <-time.After(testTimeout):
			t.Fatalf("%v waits", args)
		}
	}
}
