// SPDX-License-Identifier: Apache-2.0

package tests

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// retired are words that this project once used in a way of its own, each with the word that took its place. The second
// pattern, if any, is a use of the word that is plain English.
var retired = map[string]struct{ now, word, fine string }{
	"row":             {"file, or the field that names it", `\b[Rr]ows?\b|\bROWS?\b|NODECERT_ROW|RowID`, `\bin a row\b`},
	"owed":            {"pending", `\b[Oo]we[ds]?\b`, ""},
	"unit-paid":       {"unit-action-done", `\bunit-paid\b|"paid"`, ""},
	"unprovable":      {"unknown", `\b[Uu]nprovable\b`, ""},
	"not yet":         {"waiting", "`not yet`|\"not yet\"", ""},
	"trouble":         {"error", `"trouble"|\*Trouble\*|; trouble:`, ""},
	"kept":            {"retained", "\"kept\"|\\*Kept\\*|`kept`|\"KEPT\"|agent_kept", ""},
	"operator's word": {"local override", `\boperator'?s'? word\b|operator-(applied|released)|\bReadWord\b`, ""},
	"release":         {"--revert", `--release\b`, ""},
	"tombstone":       {"mark-used", `\b[Tt]ombstones?\b`, ""},
	"look, glance":    {"bootstrap.pollInterval", `identity\.(look|glance|probe|pendingMax)\b|\bglance:`, ""},
	"follow":          {"watch, resync", `\bfollow\.[a-z]\w+|(?m)^#?\s*follow:|\bfollow: \{`, ""},
	"coalesce":        {"actions.batchWindow", `\bcoalesce\b|actions\.spread`, ""},
	"patience":        {"timeout", `\b[Pp]atience\b`, ""},
	"allowance":       {"rate limit", `\b[Aa]llowances?\b`, ""},
	"complaint":       {"last error", `\b[Cc]omplaints?\b`, ""},
	"half":            {"writer, or agent", `\b(un)?privileged half\b|\bother half\b`, ""},
	"maker":           {"prerequisite, or oneshot", `\b[Mm]akers?\b`, ""},
	"a pass":          {"reconcile", `\b(next|last|every|each) pass\b`, `\b(every|each) pass over\b`},
}

// wordsPage is the decision about them, which has to name some.
const wordsPage = "docs/decisions/0034-public-words.md"

// TestNoRetiredWordIsUsed reads what people read and what the product prints. Tests may speak as they like.
func TestNoRetiredWordIsUsed(t *testing.T) {
	all := texts(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(name, "tests/") || strings.HasSuffix(name, "_test.go") || name == wordsPage {
			continue
		}
		for _, w := range retired {
			text := all[name]
			if w.fine != "" {
				text = regexp.MustCompile(w.fine).ReplaceAllString(text, "")
			}
			if found := regexp.MustCompile(w.word).FindString(text); found != "" {
				t.Errorf("%s says %q; the word is %s", name, found, w.now)
			}
		}
	}
}

// TestTheGlossaryIsShort: a reader who needs more words than that needs another language.
func TestTheGlossaryIsShort(t *testing.T) {
	_, glossary, found := strings.Cut(texts(t)["ARCHITECTURE.md"], "\n## Glossary\n")
	glossary, _, _ = strings.Cut(glossary, "\n## ")
	if n := strings.Count(glossary, " · ") + 1; !found || n < 10 || n > 25 {
		t.Errorf("the glossary has %d words, want 10 to 25", n)
	}
}
