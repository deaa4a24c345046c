// SPDX-License-Identifier: Apache-2.0

package unitplan

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/agent/plan"
)

func TestPending(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	// What is on disk: a field whose file changed now, and another, of an hour before.
	in := Inputs{Digest: plan.Digest{1},
		Fields: map[plan.Field]fieldInputs{plan.KubeAPIServerServingCAData: {plan.Digest{11},
			now}, plan.RootCAData: {plan.Digest{12}, now.Add(-time.Hour)}}}
	running := func(invocation string, since time.Duration) State {
		return State{Exists: true, Active: true, Boot: "boot1", Invocation: invocation, Since: now.Add(since)}
	}
	finished := func(invocation string, since time.Duration) State {
		return State{Exists: true, Boot: "boot1", Invocation: invocation, Since: now.Add(since)}
	}
	failed := func(invocation string, since time.Duration) State {
		s := finished(invocation, since)
		s.Failed = true
		return s
	}
	busy := func(s State) State {
		s.Active, s.Busy = true, true
		return s
	}
	loaded := func(b byte, invocation string) Loaded {
		return Loaded{Inputs: plan.Digest{b}, Boot: "boot1", Invocation: invocation}
	}
	knew := func(fields map[plan.Field]plan.Digest) Loaded {
		return Loaded{Inputs: plan.Digest{2}, Fields: fields, Boot: "boot1", Invocation: "i1"}
	}
	for sentence, c := range map[string]struct {
		verb   Verb
		unit   State
		loaded Loaded
		known  bool
		want   Action
	}{
		"a unit that does not run has nothing pending": {Reload, State{},
			Loaded{Unknown: true}, true, Nothing},
		"a unit that loaded what is on disk has nothing pending": {Reload, running("i1", -time.Hour),
			loaded(1, "i1"), true, Nothing},
		"a change since the last load is pending": {Reload, running("i1", -time.Hour),
			loaded(2, "i1"), true, Act},
		"a change is pending even when the clock was set back since": {Reload, running("i1", time.Hour),
			loaded(2, "i1"), true, Act},
		"a dispatched action that was not seen done is pending again": {Reload, running("i1", -time.Hour),
			Loaded{Unknown: true}, true, Act},
		"a unit that restarted by itself after the change is adopted": {Reload, running("i2", time.Minute),
			loaded(2, "i1"), true, Adopt},
		"a restart during a dispatched action, after the change, is taken": {TryRestart,
			running("i2", time.Minute), Loaded{Unknown: true}, true, Adopt},
		"a run that was found not to have loaded it has an action pending, whatever the clock says": {TryRestart,
			running("i2", time.Minute), Loaded{}.Outdated(running("i2", 0)), true, Act},
		"and the run after it is judged anew": {TryRestart,
			running("i3", time.Minute), Loaded{}.Outdated(running("i2", 0)), true, Adopt},
		"a unit that restarted by itself before the change has an action pending": {TryRestart,
			running("i2", -time.Minute), loaded(2, "i1"), true, Act},
		"a restart at the moment of the change is doubtful: act": {Reload, running("i2", clockSlack/2),
			loaded(1, "i1"), true, Act},
		"after a reboot a unit started after the change is adopted": {TryRestart,
			running("i1", time.Minute), Loaded{Inputs: plan.Digest{2}, Boot: "boot0", Invocation: "i1"}, true, Adopt},
		"without memory a reload is pending": {Reload, running("i1", -time.Minute),
			Loaded{}, false, Act},
		"without memory a unit started after the change is adopted": {Reload, running("i1", time.Minute),
			Loaded{}, false, Adopt},
		"without memory a restart needs proof of a change": {TryRestart,
			running("i1", -time.Minute), Loaded{}, false, Act},
		"without memory a change a moment after the start is pending": {TryRestart,
			running("i1", -clockSlack/2), Loaded{}, false, Act},
		"without memory a change by the same tick is pending": {TryRestart, running("i1", coarse/2),
			Loaded{}, false, Act},
		"without memory and proof there is no restart": {TryRestart,
			running("i1", clockSlack/2), Loaded{}, false, Adopt},
		"a unit that is masked or missing has nothing pending": {Reload, State{}, Loaded{}, false,
			Nothing},
		"a unit that failed reads its files when it starts": {TryRestart,
			State{Exists: true, Failed: true}, Loaded{Unknown: true}, true, Nothing},
		"dispatched by an agent that died, before the restart: act": {TryRestart,
			running("i1", -time.Hour), Loaded{Unknown: true}, true, Act},
		"a reload is never proven by the time of the start": {Reload, running("i1", -time.Hour),
			loaded(1, "i0"), true, Act},
		"a oneshot that never ran has a run pending": {Restart,
			State{Exists: true, Boot: "boot1"}, Loaded{}, false, Act},
		"a oneshot that ran is inactive and has nothing pending": {Restart, finished("i1", -time.Hour),
			loaded(1, "i1"), true, Nothing},
		"a oneshot that systemd has forgotten since has nothing pending": {Restart,
			State{Exists: true, Boot: "boot1"}, loaded(1, ""), true, Nothing},
		"a oneshot has a run pending after a change": {Restart, finished("i1", -time.Hour),
			loaded(2, "i1"), true, Act},
		"a oneshot that somebody ran after the change is adopted": {Restart,
			finished("i2", time.Minute), loaded(2, "i1"), true, Adopt},
		"a oneshot that somebody ran before the change has a run pending": {Restart,
			finished("i2", -time.Minute), loaded(2, "i1"), true, Act},
		"a oneshot whose run after the change failed has another pending": {Restart, failed("i2", time.Minute),
			loaded(2, "i1"), true, Act},
		"a oneshot adopted while it ran, which then failed, has another pending": {Restart, failed("i2", time.Minute),
			loaded(1, "i2"), true, Act},
		"a oneshot that still runs since the change is not adopted": {Restart,
			busy(finished("i2", time.Minute)), loaded(2, "i1"), true, Act},
		"a dispatched oneshot that still runs is not adopted": {Restart,
			busy(finished("i2", time.Minute)), Loaded{Unknown: true}, true, Act},
		"without memory a oneshot that still runs since the change is not adopted": {Restart,
			busy(finished("i2", time.Minute)), Loaded{}, false, Act},
		"a unit that was started after the change and still has its job is not adopted": {TryRestart,
			busy(running("i2", time.Minute)), loaded(2, "i1"), true, Act},
		"without memory a unit that is about to have started is adopted": {TryRestart, busy(running("i2", time.Minute)),
			Loaded{}, false, Adopt},
		"a oneshot has a run pending in each boot": {Restart, State{Exists: true, Boot: "boot1"},
			Loaded{Inputs: plan.Digest{1}, Boot: "boot0", Invocation: "i1"}, true, Act},
		"a oneshot that runs through (exited) is as good as any": {Restart, running("i1", -time.Hour),
			loaded(1, "i1"), true, Nothing},
		"a oneshot that was dispatched and not seen done has a run pending": {Restart, finished("i1", -time.Hour),
			Loaded{Unknown: true}, true, Act},
		"without memory a oneshot has a run pending: it disturbs nobody": {Restart, finished("i1", -time.Minute),
			Loaded{}, false, Act},
		"a new field whose file was there before the unit's start is adopted": {TryRestart, running("i1", -time.Minute),
			knew(map[plan.Field]plan.Digest{plan.KubeAPIServerServingCAData: {11}}), true, Adopt},
		"a new field whose file changed after the unit's start is pending": {TryRestart, running("i1", -time.Minute),
			knew(map[plan.Field]plan.Digest{plan.RootCAData: {12}}), true, Act},
		"a new field does not hide another's change": {TryRestart, running("i1", -time.Minute),
			knew(map[plan.Field]plan.Digest{plan.KubeAPIServerServingCAData: {10}}), true, Act},
		"a field that lost its files is pending": {TryRestart, running("i1", time.Hour),
			knew(map[plan.Field]plan.Digest{plan.KubeAPIServerServingCAData: {11}, plan.RootCAData: {12},
				plan.ImageRegistryBundleData: {13}}), true, Act},
		"a field that got its first file is pending, even when the clock was back": {TryRestart, running("i1", time.Hour),
			knew(map[plan.Field]plan.Digest{plan.KubeAPIServerServingCAData: {11}, plan.RootCAData: {}}), true, Act},
		"without memory and a start time there is no restart": {TryRestart,
			State{Exists: true, Active: true, Invocation: "i1"}, Loaded{}, false, Adopt},
	} {
		t.Run(sentence, func(t *testing.T) {
			got := Decide(Unit{Verb: c.verb}, c.unit, in, c.loaded, c.known)
			if got.Action != c.want {
				t.Errorf("decided %q (%s), want %q", got.Action, got.Why, c.want)
			}
			doubtful := in
			doubtful.Doubt = "a file"
			if d := Decide(Unit{Verb: c.verb}, c.unit, doubtful, c.loaded, c.known); d.Outdated != got.Outdated ||
				d.Action != Wait && d.Action != Nothing {
				t.Errorf("decided %q in doubt, and to remember that %v", d.Action, d.Outdated)
			}
			if again := Decide(Unit{Verb: c.verb}, c.unit, in, c.loaded.Outdated(c.unit), true); got.Outdated &&
				(c.want != Act || again.Outdated || again.Action != Act) {
				t.Errorf("what is remembered leads to %q", again.Action)
			}
			if c.want == Act && !got.Outdated && !c.loaded.In(c.unit) {
				t.Error("does not remember that this run is behind")
			}
		})
	}
}

func TestInputsDependOnlyOnTheFilesTheUnitReads(t *testing.T) {
	a, r := kubelet("a"), entry(plan.ImageRegistryBundleData, "r", "r")
	base := InputsOf("a.service", policy, disk(a), nil, nil)
	if base.Digest == InputsOf("a.service", policy, disk(kubelet("b")), nil, nil).Digest {
		t.Error("another content gives the same inputs")
	}
	if !reflect.DeepEqual(base, InputsOf("a.service", policy, disk(a, r), nil, nil)) {
		t.Error("a file of a field that does not name the unit is among its inputs")
	}
	if base.Digest == InputsOf("b.service", policy, disk(a), nil, nil).Digest {
		t.Error("a unit that reads nothing has the inputs of one that reads a file")
	}
	absent := InputsOf("a.service", policy, plan.Observed{a.Key: plan.File{}}, nil, nil)
	if absent.Digest != InputsOf("a.service", policy, nil, nil, nil).Digest {
		t.Error("an absent file counts as an input")
	}
	if d, asked := absent.Digests()[a.Key.Field]; !asked || d != (plan.Digest{}) {
		t.Error("a field that was asked for and has no file is not remembered as such")
	}
	late := disk(a)
	f := late[a.Key]
	f.Changed = time.Unix(7, 0)
	late[a.Key] = f
	if got := InputsOf("a.service", policy, late, nil, nil).changed(); !got.Equal(f.Changed) {
		t.Errorf("changed at %v", got)
	}
}

// TestWhatIsInTheWayIsAnInput: a unit may have read through a link, and goes on with that when the link is gone.
func TestWhatIsInTheWayIsAnInput(t *testing.T) {
	a := kubelet("a")
	none := InputsOf("a.service", policy, plan.Observed{a.Key: plan.File{}}, nil, nil)
	odd := InputsOf("a.service", policy, plan.Observed{a.Key: plan.File{Kind: plan.Irregular}}, nil, nil)
	if odd.Digest == none.Digest || odd.Digest == InputsOf("a.service", policy, disk(a), nil, nil).Digest {
		t.Error("what is in the way counts as no file, or as the file")
	}
}

func TestAFileThatIsNotInOrderIsInDoubt(t *testing.T) {
	a, r := kubelet("a"), entry(plan.ImageRegistryBundleData, "r", "r")
	file := a.Key
	for sentence, c := range map[string]struct {
		asked, planned []plan.Entry
		on             plan.File
		unsynced       bool
		want           string
	}{
		"a file as it shall be": {asked: []plan.Entry{a}, planned: []plan.Entry{a},
			on: disk(a)[file]},
		"one with what is held in it": {asked: []plan.Entry{a},
			planned: []plan.Entry{kubelet("a", "b")}, on: disk(kubelet("a", "b"))[file]},
		"one that cannot be read": {asked: []plan.Entry{a},
			on: plan.File{Kind: plan.Unreadable, Reason: "input/output error"}, want: "input/output error"},
		"one that cannot be read and nobody asks for": {on: plan.File{Kind: plan.Unreadable,
			Reason: "input/output error"}, want: "input/output error"},
		"a link in its place": {asked: []plan.Entry{a},
			on: plan.File{Kind: plan.Irregular, Reason: "a link"}, want: "a link"},
		"somebody's link where nothing is asked for": {on: plan.File{Kind: plan.Irregular, Reason: "a link"}},
		"somebody's file where nothing is asked for": {on: disk(kubelet("b"))[file]},
		"one whose repair was put off": {asked: []plan.Entry{a}, planned: []plan.Entry{a},
			on: disk(kubelet("b"))[file], want: "it is not yet as it shall be"},
		"one that is missing and about to be written": {asked: []plan.Entry{a}, planned: []plan.Entry{a},
			want: "it is not yet as it shall be"},
		"one that is missing and not ours to make": {asked: []plan.Entry{a},
			on: plan.File{Reason: "missing, and it is not ours to make"}},
		"one in a closed directory, which is left to others":       {asked: []plan.Entry{a}, on: disk(kubelet("b"))[file]},
		"one whose last write failed and that nobody asks for now": {on: disk(a)[file], unsynced: true},
		"one that was not looked at since it was written": {asked: []plan.Entry{a}, planned: []plan.Entry{a},
			on: plan.File{Kind: plan.Regular, Digest: a.Digest}, want: "it has not been looked at since it was written"},
		"one whose last write failed": {asked: []plan.Entry{a}, planned: []plan.Entry{a}, on: disk(a)[file], unsynced: true,
			want: "its last write failed"},
	} {
		o := disk(r)
		o[file] = c.on
		doubts := Doubts(append(c.asked, r), append(c.planned, r), o, map[plan.Key]bool{file: c.unsynced})
		if got := doubts[file]; got != c.want || len(doubts) > 1 {
			t.Errorf("%s: in doubt for %q (%v), want %q", sentence, got, doubts, c.want)
		}
		in := InputsOf("a.service", policy, o, nil, doubts)
		running := State{Exists: true, Active: true, Invocation: "i", Since: time.Now()}
		for _, l := range []Loaded{{}, {Inputs: in.Digest, Invocation: "i"}, {Unknown: true}} {
			if d := Decide(Unit{Verb: Reload}, running, in, l, true); (d.Action == Wait) != (c.want != "") {
				t.Errorf("%s: who reads it has to %s (%s)", sentence, d.Action, d.Why)
			}
		}
		if d := Decide(Unit{Verb: Reload}, State{Exists: true}, in, Loaded{}, true); d.Action != Nothing {
			t.Errorf("%s: who does not run has to %s", sentence, d.Action)
		}
		if in := InputsOf("b.service", policy, o, nil, doubts); in.Doubt != "" {
			t.Errorf("%s: who does not read it waits: %s", sentence, in.Doubt)
		}
	}
}

func TestAFileThatIsLeftAsItIsIsNotInDoubt(t *testing.T) {
	remembered := kubelet("a")
	remembered.AsIs = kubelet("b", "a").Digest
	if doubts := Doubts(nil, []plan.Entry{remembered}, disk(kubelet("b", "a")), nil); len(doubts) != 0 {
		t.Errorf("in doubt: %v", doubts)
	}
}

func TestAFileThatMovesToAnotherFieldIsTheSameInput(t *testing.T) {
	both := plan.Policy{Files: slices.Clone(policy.Files)}
	for i := range both.Files {
		both.Files[i].OnChange = []string{"a.service"}
	}
	list, user := entry(plan.ImageRegistryBundleData, "r", "r"), entry(plan.ImageRegistryBundleUserData, "r", "r")
	before := InputsOf("a.service", both, disk(kubelet("a"), list), nil, nil)
	for sentence, o := range map[string]plan.Observed{
		"it is asked for by the other list":           disk(kubelet("a"), user),
		"and the claim still names the first of them": disk(kubelet("a"), list, user),
	} {
		if got := InputsOf("a.service", both, o, nil, nil); got.Digest != before.Digest {
			t.Errorf("%s: the inputs differ", sentence)
		}
	}
	if InputsOf("a.service", both, disk(kubelet("a"), entry(plan.ImageRegistryBundleData, "s", "r")), nil,
		nil).Digest == before.Digest {
		t.Error("another file with the same content gives the same inputs")
	}
}

func TestWhatAUnitHasLoadedIsKnownOnlyIfNothingWasTouched(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	lists := []plan.Field{plan.ImageRegistryBundleData, plan.ImageRegistryBundleUserData}
	p := plan.Policy{}
	for _, id := range lists {
		p.Files = append(p.Files, plan.FileSpec{Field: id, Path: "/c/{name}/ca.crt", OnChange: []string{"reader.service"}})
	}
	of := func(files map[plan.Key]plan.File) Inputs { return InputsOf("reader.service", p, files, nil, nil) }
	one, two, moved := plan.Key{Field: lists[0], Name: "one"}, plan.Key{Field: lists[1], Name: "two"},
		plan.Key{Field: lists[0], Name: "two"}
	file := func(b byte, changed time.Time) plan.File {
		return plan.File{Kind: plan.Regular, Digest: plan.Digest{b}, Changed: changed}
	}
	older := now.Add(-time.Hour)
	before := of(map[plan.Key]plan.File{one: file(11, now), two: file(12, older)})
	for sentence, c := range map[string]struct {
		files map[plan.Key]plan.File
		want  bool
	}{
		"nothing changed": {map[plan.Key]plan.File{one: file(11, now.Local()), two: file(12, older)},
			true},
		"another content":                     {map[plan.Key]plan.File{one: file(13, now), two: file(12, older)}, false},
		"the same content, written once more": {map[plan.Key]plan.File{one: file(11, now), two: file(12, now)}, false},
		"the same, after the clock went back": {map[plan.Key]plan.File{one: file(11, now.Add(-time.Minute)),
			two: file(12, older)}, false},
		"a file that is long gone is asked of": {map[plan.Key]plan.File{one: file(11, now), two: file(12, older),
			{Field: lists[1], Name: "three"}: {}}, true},
		"a file is missing":            {map[plan.Key]plan.File{one: file(11, now)}, false},
		"another list asks for a file": {map[plan.Key]plan.File{one: file(11, now), moved: file(12, older)}, true},
	} {
		in := of(c.files)
		if got, back := in.Untouched(before), before.Untouched(in); got != c.want || back != got {
			t.Errorf("%s: untouched %v, and %v the other way", sentence, got, back)
		}
	}
}

func TestWhatAOneshotHasMadeIsTakenForGrantedOnlyIfItIsOlderThanTheBoot(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	in := Inputs{Digest: plan.Digest{1}, Fields: map[plan.Field]fieldInputs{plan.RootCAData: {plan.Digest{11}, now}}}
	for sentence, c := range map[string]struct {
		loaded Loaded
		known  bool
		booted time.Duration
		want   plan.Digest
	}{
		"it is remembered":                         {Loaded{Made: plan.Digest{2}}, true, time.Hour, plan.Digest{2}},
		"it is remembered that it never ran":       {Loaded{}, true, time.Hour, plan.Digest{}},
		"nothing is remembered, the files are old": {Loaded{}, false, time.Hour, plan.Digest{1}},
		"nothing is remembered, the files are new": {Loaded{}, false, -time.Hour, plan.Digest{}},
	} {
		if got := c.loaded.MadeOf(c.known, in, now.Add(c.booted)); got != c.want {
			t.Errorf("%s: made of %v", sentence, got)
		}
	}
}
