package parity

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Without a cluster: that the comparison and its lists are as strict as they should be.

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		what, theirs, ours string
		fields             []string
	}{
		{"the same", `{"milestones": ["a: yes"], "volumes": {"v": {"phase": "Bound"}}}`, `{"milestones": ["a: yes"], "volumes": {"v": {"phase": "Bound"}}}`, nil},
		{"a leaf", `{"volumes": {"v": {"phase": "Bound"}}}`, `{"volumes": {"v": {"phase": "Released"}}}`, []string{"volumes.v.phase"}},
		{"a field that only one has", `{"claims": {"c": {"phase": "Bound", "deleting": true}}}`, `{"claims": {"c": {"phase": "Bound", "labels": {"a": "b"}}}}`,
			[]string{"claims.c.deleting", "claims.c.labels"}},
		{"an object that only one has", `{"volumes": {"v": {"phase": "Bound"}}}`, `{"claims": {"c": {"phase": "Bound"}}}`, []string{"claims.c", "volumes.v"}},
		{"a set", `{"events": ["a", "b"]}`, `{"events": ["c", "b"]}`, []string{"events{a}", "events{c}"}},
		{"a set that only one has", `{"leaked": ["v"]}`, `{}`, []string{"leaked{v}"}},
		{"milestones are in order", `{"milestones": ["a", "b"]}`, `{"milestones": ["b", "a"]}`, []string{"milestones[0]", "milestones[1]"}},
		{"calls are in order", `{"calls": {"v": [{"method": "A"}, {"method": "B"}]}}`, `{"calls": {"v": [{"method": "B"}]}}`,
			[]string{"calls.v[0].method", "calls.v[1]"}},
		{"a status", `{}`, `{"exit": 1}`, []string{"exit"}},
	} {
		var theirs, ours any
		if err := errors.Join(json.Unmarshal([]byte(c.theirs), &theirs), json.Unmarshal([]byte(c.ours), &ours)); err != nil {
			t.Fatal(err)
		}
		var fields []string
		for _, d := range compare("", theirs, ours) {
			fields = append(fields, d.field)
		}
		if !slices.Equal(fields, c.fields) {
			t.Errorf("%s: got differences in %q, want %q", c.what, fields, c.fields)
		}
	}
}

func TestBoundClaimsThatDidNotChange(t *testing.T) {
	const claims = `"claims": {"c": {"phase": "Bound"}}, "milestones": ["c bound: yes", "d bound: no"], `
	const volumes = `"volumes": {"v": {"phase": "Bound", "spec": {"claimRef": {"name": "c", "namespace": "NAME"}}}}`
	for _, c := range []struct {
		what, theirs string
		fields       []string
	}{
		{"left out", `{` + claims + volumes + `}`, nil},
		{"the same", `{` + claims + volumes + `, "bound": {"c": {"claim": {"phase": "Bound"}, "volume": {"spec": {"claimRef": {"name": "c", "namespace": "NAME"}}}}}}`, nil},
		{"another", `{` + claims + volumes + `, "bound": {"c": {"claim": {"phase": "Bound", "deleting": true}, "volume": {"spec": {"claimRef": {"name": "c", "namespace": "NAME"}}}}}}`,
			[]string{"bound.c.claim.deleting"}},
	} {
		var theirs, ours map[string]any
		if err := errors.Join(json.Unmarshal([]byte(c.theirs), &theirs), json.Unmarshal([]byte(`{`+claims+volumes+`}`), &ours)); err != nil {
			t.Fatal(err)
		}
		var fields []string
		for _, d := range compare("", withBound(theirs), withBound(ours)) {
			fields = append(fields, d.field)
		}
		if !slices.Equal(fields, c.fields) {
			t.Errorf("%s: got differences in %q, want %q", c.what, fields, c.fields)
		}
	}
}

func TestTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	text := "# Page\n\n## Other\n\n| `else` | `events` | | |\n\n## Differences\n\n| Scenario | Fields | | |\n|---|---|---|---|\n" +
		"| `plain`, `clone-*` | `calls`, `claims.source.finalizers` | words | |\n| `gone` | `exit` | | |\n\n## Next\n\n| `last` | `exit` | | |\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	rows, err := readTable(file, "Differences")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		scenario, field string
		allowed         bool
	}{
		{"plain", "calls.pvc-x[0].code", true},
		{"clone-larger", "claims.source.finalizers{a}", true},
		{"clone-larger", "claims.source.annotations.a", false},
		{"clone", "calls", false},
		{"plain", "callsigns", false},
		{"else", "events{a}", false},
		{"last", "exit", false},
	} {
		if got := rows.allows(c.scenario, difference{field: c.field}); got != c.allowed {
			t.Errorf("%s in %s is allowed: %t, want %t", c.field, c.scenario, got, c.allowed)
		}
	}
	if unused := strings.Join(rows.unused(), "; "); unused != "gone (in the row of gone); exit (in the row of gone)" {
		t.Errorf("got unused entries %q", unused)
	}
	if _, err := readTable(file, "Missing"); err == nil {
		t.Error("a page without the table is not an error")
	}
}

func TestPendingThatNoLongerDiffers(t *testing.T) {
	v := &verdict{pending: []string{"better", "worse", "half", "not run"}, differs: map[string]map[string]bool{
		"better": {shipped: false, original: false},
		"worse":  {shipped: false, original: true},
		"half":   {shipped: false},
	}}
	texts := v.outdated(4, 2)
	if len(texts) != 1 || !strings.HasPrefix(texts[0], "better does not differ any more: remove it from pending") {
		t.Errorf("got %q", texts)
	}
	file := filepath.Join(t.TempDir(), "pending.txt")
	if err := os.WriteFile(file, []byte("# why\nbetter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if names, err := readPending(file, []scenario{{Name: "better"}}); err != nil || !slices.Equal(names, []string{"better"}) {
		t.Errorf("got %q, %v", names, err)
	}
	if _, err := readPending(file, nil); err == nil {
		t.Error("a pending scenario that does not exist is not an error")
	}
}

func TestEveryScenarioIsRecorded(t *testing.T) {
	scenarios, err := loadScenarios(scenariosDir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := loadRecordings(recordingsDir)
	if err != nil {
		t.Fatal(err)
	}
	recorded := 0
	for _, group := range r.groups {
		recorded += len(group)
	}
	for _, s := range scenarios {
		if _, found := r.of(s); !found {
			t.Errorf("%s has no recording of %s", recordingsDir, s.Name)
		}
		if _, err := s.filled("$NAME", "n", "$DRIVER", "d", "$PORT", "1"); err != nil {
			t.Error(err)
		}
	}
	if recorded != len(scenarios) {
		t.Errorf("%s has %d recordings, %s %d scenarios", recordingsDir, recorded, scenariosDir, len(scenarios))
	}
}
