// SPDX-License-Identifier: Apache-2.0

package reloader

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/unitplan"
)

// testTimeout is more than anything here takes. What does not come in it fails the test; without it a defect would
// have the test wait for ever.
const testTimeout = 10 * time.Second

// soon is a context for a request.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

// next is what comes through a channel.
func next[T any](t *testing.T, what string, from <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(testTimeout):
		t.Fatalf("%s does not come", what)
	}
	return v
}

// fakeSystemd has units in memory. Its zero value has none.
type fakeSystemd struct {
	mu     sync.Mutex
	units  map[string]*Seen
	acted  []string // "verb unit"
	fail   error    // of each call, if not nil
	begun  chan string
	ending chan error // how a job ends; nil: at once and well
}

func (f *fakeSystemd) Look(_ context.Context, u unitplan.Unit) (Seen, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return Seen{}, f.fail
	}
	if s := f.units[u.Name]; s != nil {
		return *s, nil
	}
	return Seen{}, nil
}

func (f *fakeSystemd) Act(ctx context.Context, u unitplan.Unit) (unitplan.State, error) {
	f.mu.Lock()
	f.acted = append(f.acted, string(u.Verb)+" "+u.Name)
	begun, ending := f.begun, f.ending
	f.mu.Unlock()
	if ending != nil {
		select {
		case begun <- u.Name:
		case <-ctx.Done():
		}
		select {
		case err := <-ending:
			return unitplan.State{}, err
		case <-ctx.Done():
			return unitplan.State{}, &Error{Unit: u.Name, Verb: u.Verb, Reason: Unfinished, Detail: "the job goes on"}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.units[u.Name].State, nil
}

// end is how the job that has begun ends.
func (f *fakeSystemd) end(t *testing.T, err error) {
	t.Helper()
	select {
	case f.ending <- err:
	case <-time.After(testTimeout):
		t.Fatal("no job waits for its end")
	}
}

func (f *fakeSystemd) Version(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return "257.9-1", f.fail
}

// change lets a test change f while the server runs.
func (f *fakeSystemd) change(how func(*fakeSystemd)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	how(f)
}

func (f *fakeSystemd) log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.acted)
}

// lines is a log that tests read while the server writes.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// settings are a configuration that changes under way.
type settings struct {
	mu   sync.Mutex
	list []unitplan.Unit
	err  error
}

func (s *settings) load() ([]unitplan.Unit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list, s.err
}

func (s *settings) set(list []unitplan.Unit, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list, s.err = list, err
}

// served is a reloader that runs.
type served struct {
	*Client
	systemd *fakeSystemd
	config  *settings
	log     *lines
	socket  string
	stop    context.CancelFunc
	done    chan error

	listener net.Listener
}

var allowed = []unitplan.Unit{{Name: "a.service", Verb: unitplan.Reload},
	{Name: "b.service", Verb: unitplan.TryRestart, AlsoAffects: []string{"c.service"}}}

func started(t testing.TB, mayAsk func(uint32) bool) *served {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &served{systemd: &fakeSystemd{units: map[string]*Seen{}}, config: &settings{list: allowed}, log: &lines{},
		socket: ln.Addr().String(), stop: cancel, done: make(chan error, 1), listener: ln}
	for _, name := range []string{"a.service", "b.service", "c.service", "secret.service"} {
		s.systemd.units[name] = &Seen{Name: name, State: unitplan.State{Exists: true, Active: true, Invocation: name}}
	}
	s.systemd.units["b.service"].Affected = []string{"c.service"}
	go func() { s.done <- Serve(ctx, ln, s.systemd, s.config.load, mayAsk, s.log) }()
	s.Client = Dial(s.socket, "boot")
	t.Cleanup(func() {
		_ = s.Client.Close()
		cancel()
		_ = ln.Close()
	})
	return s
}

func ourselves(uid uint32) bool { return uid == uint32(os.Geteuid()) }

func reasonOf(err error) Reason {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

func TestAnActionIsCarriedOutAndRecordedBeforeAndAfter(t *testing.T) {
	s := started(t, ourselves)
	state, err := s.Act(soon(t), allowed[1])
	if want := (unitplan.State{Exists: true, Active: true, Invocation: "b.service", Boot: "boot"}); err != nil ||
		state != want {
		t.Errorf("have %+v, %v", state, err)
	}
	if acted := s.systemd.log(); !slices.Equal(acted, []string{"try-restart b.service"}) {
		t.Errorf("systemd was asked for %q", acted)
	}
	line := fmt.Sprintf("unit=\"b.service\" verb=try-restart affected=\"c.service\" uid=%d pid=%d\n", os.Geteuid(),
		os.Getpid())
	if want := "<5>reloader begins: " + line + "<5>reloader done: " + line; s.log.String() != want {
		t.Errorf("recorded\n%s, want\n%s", s.log, want)
	}
}

func TestAnActionThatFailsIsRecordedWithItsReason(t *testing.T) {
	s := started(t, ourselves)
	s.systemd.change(func(f *fakeSystemd) { f.begun, f.ending = make(chan string, 1), make(chan error, 1) })
	s.systemd.ending <- &Error{Unit: "a.service", Verb: unitplan.Reload, Reason: JobFailed,
		Detail: "the job's result is failed"}
	_, err := s.Act(soon(t), allowed[0])
	if err == nil || err.Error() != "reload a.service: job-failed: the job's result is failed" {
		t.Errorf("have %v", err)
	}
	if !strings.Contains(s.log.String(),
		`pid=`+fmt.Sprint(os.Getpid())+` reason=job-failed detail="the job's result is failed"`+"\n") {
		t.Errorf("recorded %s", s.log)
	}
}

func TestAJobOfSomebodyElseInTheWayPutsTheActionOff(t *testing.T) {
	s := started(t, ourselves)
	s.systemd.change(func(f *fakeSystemd) { f.begun, f.ending = make(chan string, 1), make(chan error, 1) })
	s.systemd.ending <- &Error{Unit: "a.service", Verb: unitplan.Reload, Reason: Later, Detail: "destructive"}
	_, err := s.Act(soon(t), allowed[0])
	if e := (*Error)(nil); !errors.As(err, &e) || e.Reason != Later || e.Postponed().Before(time.Now()) || e.Denied() ||
		e.Unreachable() {
		t.Errorf("have %+v", err)
	}
}

func TestWhatIsRefusedReachesSystemdInNoWayAndIsRecorded(t *testing.T) {
	for sentence, tt := range map[string]struct {
		ask    func(*Client) error
		reason Reason
		record string
	}{
		"a unit off the allowlist": {func(c *Client) error {
			_, err := c.Act(context.Background(), unitplan.Unit{Name: "secret.service", Verb: unitplan.Reload})
			return err
		}, Refused, "secret.service: refused: it is not on the allowlist"},
		"an affected unit by itself": {func(c *Client) error {
			_, err := c.Act(context.Background(), unitplan.Unit{Name: "c.service", Verb: unitplan.TryRestart})
			return err
		}, Refused, "c.service: refused: it is not on the allowlist"},
		"the state of a unit off the allowlist": {func(c *Client) error {
			_, err := c.State(context.Background(), "secret.service")
			return err
		}, Refused, "secret.service: refused: it is not on the allowlist"},
		"one among others": {func(c *Client) error {
			_, err := c.Look(context.Background(), "a.service", "secret.service")
			return err
		}, Refused, "secret.service: refused"},
		"a name that is none": {func(c *Client) error {
			_, err := c.State(context.Background(), "../x\n<3>forged")
			return err
		}, Refused, `../x\n<3>forged: refused`},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := started(t, ourselves)
			if err := tt.ask(s.Client); reasonOf(err) != tt.reason {
				t.Errorf("have %v", err)
			}
			if acted := s.systemd.log(); len(acted) > 0 {
				t.Errorf("systemd was asked for %q", acted)
			}
			want := fmt.Sprintf("<4>reloader refused a request: uid=%d pid=%d reason=", os.Geteuid(), os.Getpid())
			if got := s.log.String(); !strings.HasPrefix(got, want) || !strings.Contains(got, tt.record) ||
				strings.Count(got, "\n") != 1 {
				t.Errorf("recorded %q", got)
			}
		})
	}
}

// exchange sends a frame by hand and gives the reply's JSON.
func exchange(t testing.TB, socket string, text string) string {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(testTimeout))
	b := binary.BigEndian.AppendUint32([]byte{1}, uint32(len(text)))
	if _, err := conn.Write(append(binary.BigEndian.AppendUint32(b, 0), text...)); err != nil {
		return err.Error()
	}
	var head [9]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err.Error()
	}
	answer := make([]byte, binary.BigEndian.Uint32(head[1:]))
	_, _ = io.ReadFull(conn, answer)
	return string(answer)
}

func TestRequestsNameUnitsAndNothingElse(t *testing.T) {
	s := started(t, ourselves)
	for _, text := range []string{`{"act":"a.service","verb":"restart"}`, `{"act":"a.service","mode":"flush"}`,
		`{"act":"a.service","version":true}`, `{}`, `[]`, `{"observe":[]}`,
		`{"act":["a.service"]}`, `{"act":"a.service"}{}`, `{"act":"a.service","observe":["a.service"]}`,
		`{"stop":"a.service"}`, `null`, ``,
		`{"observe":["` + strings.Repeat(`a.service","`, maxUnits) + `a.service"]}`} {
		if answer := exchange(t, s.socket, text); !strings.Contains(answer, `"reason":"refused"`) {
			t.Errorf("%.60s: %s", text, answer)
		}
	}
	if acted := s.systemd.log(); len(acted) > 0 {
		t.Errorf("systemd was asked for %q", acted)
	}
	if answer := exchange(t, s.socket, `{"act":"a.service"}`); !strings.Contains(answer, `"verb":"reload"`) {
		t.Errorf("what it shall do: %s", answer)
	}
}

func TestOtherUsersAreNotHeard(t *testing.T) {
	s := started(t, func(uint32) bool { return false })
	if _, err := s.Act(soon(t), allowed[0]); reasonOf(err) != Unreachable {
		t.Errorf("have %v", err)
	}
	if acted := s.systemd.log(); len(acted) > 0 || !strings.Contains(s.log.String(), "<4>reloader refused a peer: uid=") {
		t.Errorf("systemd was asked for %q; recorded %s", acted, s.log)
	}
}

func TestAUnitThatWasTakenOffTheAllowlistAMomentAgoIsRefused(t *testing.T) {
	s := started(t, ourselves)
	if _, err := s.Act(soon(t), allowed[0]); err != nil {
		t.Fatal(err)
	}
	s.config.set(allowed[1:], nil)
	if _, err := s.Act(soon(t), allowed[0]); reasonOf(err) != Refused {
		t.Errorf("have %v", err)
	}
	if _, err := s.State(soon(t), "a.service"); reasonOf(err) != Refused {
		t.Errorf("its state: %v", err)
	}
	if n := len(s.systemd.log()); n != 1 {
		t.Errorf("%d actions", n)
	}
}

func TestAnotherVerbThanTheCallerExpectsIsNoSuccess(t *testing.T) {
	s := started(t, ourselves)
	s.config.set([]unitplan.Unit{{Name: "a.service", Verb: unitplan.TryRestart}}, nil)
	if _, err := s.State(soon(t), "a.service"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Affected(soon(t), allowed[0]); reasonOf(err) != Refused {
		t.Errorf("affected: %v", err)
	}
	if _, err := s.Act(soon(t), allowed[0]); reasonOf(err) != Unexpected {
		t.Errorf("act: %v", err)
	}
	if acted := s.systemd.log(); !slices.Equal(acted, []string{"try-restart a.service"}) {
		t.Errorf("systemd was asked for %q, not for what is configured", acted)
	}
}

func TestAnInvalidConfigurationKeepsTheLastValidAllowlist(t *testing.T) {
	s := started(t, ourselves)
	s.config.set(nil, errors.New("no YAML"))
	if _, err := s.Act(soon(t), allowed[0]); reasonOf(err) != Unreachable || !strings.Contains(err.Error(), "no YAML") {
		t.Errorf("before there was a valid one: %v", err)
	}
	s.config.set(allowed, nil)
	if _, err := s.Act(soon(t), allowed[0]); err != nil {
		t.Error(err)
	}
	s.config.set(nil, errors.New("no YAML again"))
	for range 2 {
		if _, err := s.Act(soon(t), allowed[0]); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Count(s.log.String(),
		"the last valid allowlist stays in force: reason=\"no YAML again\""); got != 1 {
		t.Errorf("recorded %d times: %s", got, s.log)
	}
}

func TestTwoActionsOnOneUnitDoNotRunAtOnceAndDelayNoOther(t *testing.T) {
	s := started(t, ourselves)
	s.systemd.change(func(f *fakeSystemd) { f.begun, f.ending = make(chan string), make(chan error) })
	first := make(chan error, 1)
	go func() {
		_, err := s.Act(context.Background(), allowed[0])
		first <- err
	}()
	next(t, "a job", s.systemd.begun)
	_, err := s.Act(soon(t), allowed[0])
	if e := (*Error)(nil); !errors.As(err, &e) || e.Reason != Later || time.Until(e.Postponed()) > busyDelay ||
		e.Unreachable() || e.Denied() {
		t.Errorf("the second: %+v", err)
	}
	if st, err := s.State(soon(t), "a.service"); err != nil || !st.Active {
		t.Errorf("its state meanwhile: %+v, %v", st, err)
	}
	other := make(chan error, 1)
	go func() {
		_, err := s.Act(context.Background(), allowed[1])
		other <- err
	}()
	if name := next(t, "a job", s.systemd.begun); name != "b.service" {
		t.Errorf("%s was begun", name)
	}
	s.systemd.end(t, nil)
	s.systemd.end(t, nil)
	if err := errors.Join(next(t, "the first answer", first), next(t, "the other answer", other)); err != nil {
		t.Error(err)
	}
	if acted := s.systemd.log(); len(acted) != 2 {
		t.Errorf("systemd was asked for %q", acted)
	}
}

func TestOnlySoManyActionsOnOneUnitAreCarriedOut(t *testing.T) {
	s := started(t, ourselves)
	for range burst {
		if _, err := s.Act(soon(t), allowed[0]); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Act(soon(t), allowed[0])
	if e := (*Error)(nil); !errors.As(err, &e) || e.Reason != Later || e.RetryAt.IsZero() {
		t.Errorf("one more: %v", err)
	}
	if n := len(s.systemd.log()); n != burst {
		t.Errorf("%d actions", n)
	}
	if !strings.Contains(s.log.String(), "reload a.service: later: it was acted on 5 times") {
		t.Errorf("recorded %s", s.log)
	}
	if _, err := s.Act(soon(t), allowed[1]); err != nil {
		t.Errorf("another unit: %v", err)
	}
}

func TestAnActionWhoseEndTheReloaderDoesNotSeeIsUnknownToThePeer(t *testing.T) {
	s := started(t, ourselves)
	s.systemd.change(func(f *fakeSystemd) { f.begun, f.ending = make(chan string, 1), make(chan error) })
	ended := make(chan error, 1)
	go func() {
		_, err := s.Act(context.Background(), allowed[0])
		ended <- err
	}()
	next(t, "a job", s.systemd.begun)
	s.stop()
	if err := next(t, "an answer", ended); reasonOf(err) != Unreachable {
		t.Errorf("have %v", err)
	}
	if err := next(t, "the end of the reloader", s.done); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if !strings.Contains(s.log.String(), "<4>reloader failed: unit=\"a.service\"") {
		t.Errorf("recorded %s", s.log)
	}
}

func TestAPeerThatHangsUpDoesNotEndItsActionOrItsRecord(t *testing.T) {
	s := started(t, ourselves)
	s.systemd.change(func(f *fakeSystemd) { f.begun, f.ending = make(chan string, 1), make(chan error) })
	ctx, cancel := context.WithCancel(soon(t))
	ended := make(chan error, 1)
	go func() {
		_, err := s.Act(ctx, allowed[0])
		ended <- err
	}()
	next(t, "a job", s.systemd.begun)
	cancel()
	if err := next(t, "an answer", ended); reasonOf(err) != Unfinished {
		t.Errorf("have %v", err)
	}
	s.systemd.end(t, nil)
	s.stop()
	next(t, "the end of the reloader", s.done)
	if !strings.Contains(s.log.String(), "<5>reloader done: unit=\"a.service\"") {
		t.Errorf("recorded %s", s.log)
	}
}

func TestWithoutABusTheStateIsUnreachableAndSoIsAnAction(t *testing.T) {
	s := started(t, ourselves)
	s.systemd.change(func(f *fakeSystemd) {
		f.fail = &Error{Unit: "a.service", Reason: Unreachable, Detail: "no bus"}
	})
	_, err := s.State(soon(t), "a.service")
	_, actErr := s.Act(soon(t), allowed[0])
	_, versionErr := s.Version(soon(t))
	for what, err := range map[string]error{"state": err, "act": actErr, "version": versionErr} {
		if e := (*Error)(nil); !errors.As(err, &e) || !e.Unreachable() {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.stop()
	next(t, "the end of the reloader", s.done)
	_ = s.listener.Close()
	if _, err := s.State(soon(t), "a.service"); reasonOf(err) != Unreachable {
		t.Errorf("without a reloader: %v", err)
	}
}

func TestStateAndAffectedAreOneQuestion(t *testing.T) {
	s := started(t, ourselves)
	if _, err := s.State(soon(t), "b.service"); err != nil {
		t.Fatal(err)
	}
	s.systemd.change(func(f *fakeSystemd) {
		f.units["b.service"].Affected = []string{"c.service", "later.service"}
	})
	for i, want := range [][]string{{"c.service"}, {"c.service", "later.service"}} {
		if got, err := s.Affected(soon(t), allowed[1]); err != nil || !slices.Equal(got, want) {
			t.Errorf("answer %d: %q, %v; want %q", i, got, err, want)
		}
	}
	if st, err := s.State(soon(t), "c.service"); err != nil || !st.Exists {
		t.Errorf("an affected unit: %+v, %v", st, err)
	}
}

func TestManyUnitsAreAskedAboutInPieces(t *testing.T) {
	s := started(t, ourselves)
	var names []string
	var list []unitplan.Unit
	for i := range 3*maxUnits + 1 {
		names = append(names, fmt.Sprintf("unit%d.service", i))
		list = append(list, unitplan.Unit{Name: names[i], Verb: unitplan.Reload})
		s.systemd.change(func(f *fakeSystemd) { f.units[names[i]] = &Seen{Name: names[i]} })
	}
	s.config.set(list, nil)
	all, err := s.Look(soon(t), names...)
	if err != nil || len(all) != len(names) || all[maxUnits].Name != names[maxUnits] {
		t.Errorf("%d answers to %d questions, %v", len(all), len(names), err)
	}
	if v, err := s.Version(soon(t)); err != nil || v != "257.9-1" {
		t.Errorf("version %q, %v", v, err)
	}
}

// FuzzServer sends what a hostile peer may. The reloader lives on, and acts on nothing but the allowlist.
func FuzzServer(f *testing.F) {
	s := started(f, ourselves)
	for _, text := range []string{`{"act":"a.service"}`, `{"observe":["a.service","b.service"]}`, `{"version":true}`,
		`{"act":"x.service"}`, `{`, `{"act":"a.service\u0000"}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if answer := exchange(t, s.socket, string(text)); !strings.HasPrefix(answer, "{") {
			t.Fatalf("%q is answered by %q", text, answer)
		}
		for _, acted := range s.systemd.log() {
			if acted != "reload a.service" && acted != "try-restart b.service" {
				t.Fatalf("%q made it %s", text, acted)
			}
		}
		if answer := exchange(t, s.socket, `{"version":true}`); answer != `{"version":"257.9-1"}` {
			t.Fatalf("after %q: %s", text, answer)
		}
	})
}

// Sixty-four connections of these stay below 32 MiB.
func TestNoHostileFrameCostsMuchMemory(t *testing.T) {
	s := started(t, ourselves)
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	fill := func(before, each, after string, size int) string {
		return before + strings.TrimSuffix(strings.Repeat(each, max(0, size-len(before)-len(after))/len(each)), ",") + after
	}
	for sentence, frame := range map[string]func(size int) string{
		"empty names":   func(n int) string { return fill(`{"observe":[`, `"",`, `]}`, n) },
		"objects":       func(n int) string { return fill(`{"observe":[`, `{},`, `]}`, n) },
		"one long name": func(n int) string { return fill(`{"act":"`, `a`, `"}`, n) },
		"escapes":       func(n int) string { return fill(`{"act":"`, `\u00e4`, `"}`, n) },
		"nesting":       func(n int) string { return fill(``, `[`, ``, n) },
		"a unit often":  func(n int) string { return fill(`{"observe":[`, `"a.service",`, `]}`, n) },
	} {
		for _, size := range []int{requests.Text, 15 << 20} {
			text := frame(size)
			before := allocated()
			_ = exchange(t, s.socket, text)
			// What was sent is copied once by the sender, which is this process, too.
			if used := int64(allocated()-before) - int64(len(text)); used > 400<<10 {
				t.Errorf("%s: a frame of %d bytes allocated %d KiB", sentence, len(text), used>>10)
			}
		}
	}
}
