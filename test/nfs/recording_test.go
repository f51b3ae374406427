package nfs

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// step is a call, or something done on the server, and its outcome.
type step struct {
	verb    string
	name    string
	args    []string
	outcome []string
}

// call is how docs/migrate.md names the step.
func (s step) call() string {
	if s.verb == "tree" {
		return strings.Join(append([]string{s.verb}, s.args...), " ")
	}
	return s.verb + " " + s.name
}

// readRecording reads a file of testdata, which explains its format.
func readRecording(t *testing.T, file string) []step {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		if outcome, ok := strings.CutPrefix(line, "\t"); ok && len(steps) > 0 {
			steps[len(steps)-1].outcome = append(steps[len(steps)-1].outcome, outcome)
			continue
		}
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		s := step{verb: words[0], args: words[1:]}
		if len(words) > 1 && s.verb != "tree" {
			s.name, s.args = words[1], words[2:]
		}
		steps = append(steps, s)
	}
	return steps
}

// facts splits an outcome into facts, by what they are about.
func facts(outcome []string) map[string]string {
	all := map[string]string{}
	entry := regexp.MustCompile(`^[dl-][rwxsStT-]{9} `)
	for _, line := range outcome {
		words := strings.Fields(line)
		switch kind := words[0]; {
		case entry.MatchString(line):
			all["entry "+words[len(words)-1]] = line
		case kind == "ok", kind == "error":
			all["answer"] = line
		case kind == "context":
			for _, pair := range words[1:] {
				key, _, _ := strings.Cut(pair, "=")
				all["context "+key] = "context " + pair
			}
		case kind == "mount":
			all["mount"] = "mount " + words[1]
			for option := range strings.SplitSeq(words[2], ",") {
				name, _, _ := strings.Cut(option, "=")
				all["option "+name] = "option " + option
			}
		default:
			all[kind] = line
		}
	}
	return all
}

// difference is a fact on which the recording and this driver differ; "" for none.
type difference struct{ call, there, here string }

func (d difference) String() string {
	cell := func(text string) string {
		if text == "" {
			return "-"
		}
		return "`" + text + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | reason |", d.call, cell(d.there), cell(d.here))
}

// compare returns the facts on which two outcomes differ: only the answer, if one is an
// error and the other is not.
func compare(call string, there, here []string) (found []difference) {
	a, b := facts(there), facts(here)
	if a["answer"] != b["answer"] {
		return []difference{{call, a["answer"], b["answer"]}}
	}
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if a[key] != b[key] {
			found = append(found, difference{call, a[key], b[key]})
		}
	}
	return found
}

// allowance is a row of the table in docs/migrate.md. A * is any text; the same in both
// columns.
type allowance struct {
	difference
	used bool
}

func (a *allowance) allows(d difference) bool {
	if _, ok := match(a.call, d.call); !ok || (a.there == "") != (d.there == "") || (a.here == "") != (d.here == "") {
		return false
	}
	stars, ok := match(a.there, d.there)
	if !ok {
		return false
	}
	here := a.here
	for _, star := range stars {
		here = strings.Replace(here, "*", star, 1)
	}
	_, ok = match(here, d.here)
	return ok
}

func match(pattern, text string) (stars []string, ok bool) {
	quoted := strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `(.*)`)
	found := regexp.MustCompile(`^` + quoted + `$`).FindStringSubmatch(text)
	if found == nil {
		return nil, false
	}
	return found[1:], true
}

// readAllowances reads the table below a heading of a page. Every row has a reason.
func readAllowances(t *testing.T, page, heading string) (rows []*allowance) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n#")
	row := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (?:`([^`]+)`|-) \\| (?:`([^`]+)`|-) \\| (.{10,}) \\|$")
	for _, cells := range row.FindAllStringSubmatch(section, -1) {
		rows = append(rows, &allowance{difference: difference{cells[1], cells[2], cells[3]}})
	}
	if len(rows) == 0 || len(rows) != strings.Count(section, "\n| `") {
		t.Fatalf("%s: %d of %d rows below %q could be read", page, len(rows), strings.Count(section, "\n| `"), heading)
	}
	return rows
}

// complaints are the differences that no row allows, and the rows without a difference.
func complaints(found []difference, rows []*allowance) (list []string) {
	for _, d := range found {
		allowed := false
		for _, row := range rows {
			if row.allows(d) {
				row.used, allowed = true, true
			}
		}
		if !allowed {
			list = append(list, fmt.Sprintf("not in the table:\n%s", d))
		}
	}
	for _, row := range rows {
		if !row.used {
			list = append(list, fmt.Sprintf("no longer differs:\n%s", row.difference))
		}
	}
	return list
}

func TestRecordingIsReadWithoutNFS(t *testing.T) {
	steps := readRecording(t, recording)
	calls := 0
	for _, s := range steps {
		if len(s.outcome) > 0 && s.verb != "tree" {
			calls++
		}
	}
	if calls != 43 {
		t.Errorf("%d calls were read, 43 were recorded", calls)
	}
	rows := []*allowance{
		{difference: difference{"create *", "id *#", "id *#delete"}},
		{difference: difference{"tree", "", "new"}},
	}
	for d, want := range map[difference]bool{
		{"create v1", "id a#b#", "id a#b#delete"}: true, {"create v1", "id a#b#", "id c#b#delete"}: false,
		{"delete v1", "id a#b#", "id a#b#delete"}: false, {"tree", "", "new"}: true, {"tree", "old", "new"}: false,
	} {
		if got := slices.ContainsFunc(rows, func(r *allowance) bool { return r.allows(d) }); got != want {
			t.Errorf("%s: allowed %v, want %v", d, got, want)
		}
	}
	said := strings.Join(complaints([]difference{{"create v1", "id 1#", "id 1#delete"}, {"delete v1", "ok", "error Internal"}}, rows), "\n")
	if want := "not in the table:\n| `delete v1` | `ok` | `error Internal` | reason |\nno longer differs:\n| `tree` | - | `new` | reason |"; said != want {
		t.Errorf("complaints are\n%s\nwant\n%s", said, want)
	}
	got := compare("create v", []string{"ok", "id 1", "context a=1 b=2"}, []string{"ok", "id 1", "context b=3 c=4"})
	want := []difference{{"create v", "context a=1", ""}, {"create v", "context b=2", "context b=3"}, {"create v", "", "context c=4"}}
	if !slices.Equal(got, want) {
		t.Errorf("differences are %v, want %v", got, want)
	}
}
