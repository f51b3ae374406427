package parity

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

const none = "(none)"

// difference is a leaf of two records that is not the same.
type difference struct{ field, theirs, ours string }

func (d difference) String() string {
	return fmt.Sprintf("%s\n\texternal-provisioner: %s\n\tcsi-provisioner:      %s", d.field, d.theirs, d.ours)
}

// compare returns the differences of two JSON values, which are at field. Texts in a list
// are a set, but for milestones: the field of one ends in {TEXT}.
func compare(field string, theirs, ours any) []difference {
	// Objects that only one side has are named, but not taken apart.
	top := !strings.Contains(field, ".")
	switch a := theirs.(type) {
	case map[string]any:
		if b, ok := ours.(map[string]any); ok || ours == nil && top {
			return compareMaps(field, a, b)
		}
	case []any:
		if b, ok := ours.([]any); ok || ours == nil {
			return compareLists(field, a, b)
		}
	case nil:
		switch b := ours.(type) {
		case []any:
			return compareLists(field, nil, b)
		case map[string]any:
			if top {
				return compareMaps(field, nil, b)
			}
		}
	}
	if sameJSON(theirs, ours) {
		return nil
	}
	return []difference{{field, brief(theirs), brief(ours)}}
}

// withBound adds to a record what it leaves out: claims and volumes that ended as they
// were bound.
func withBound(record map[string]any) map[string]any {
	bound := maps.Clone(fieldsOf(record, "bound"))
	if bound == nil {
		bound = map[string]any{}
	}
	milestones, _ := record["milestones"].([]any)
	for _, milestone := range milestones {
		name, found := strings.CutSuffix(fmt.Sprint(milestone), " bound: yes")
		if !found || bound[name] != nil {
			continue
		}
		pair := map[string]any{"claim": fieldsOf(record, "claims")[name]}
		for _, volume := range fieldsOf(record, "volumes") {
			volume, _ := volume.(map[string]any)
			if claim := fieldsOf(volume, "spec", "claimRef"); claim["name"] == name && claim["namespace"] == "NAME" {
				volume = maps.Clone(volume)
				delete(volume, "phase")
				pair["volume"] = volume
			}
		}
		bound[name] = pair
	}
	full := maps.Clone(record)
	if len(bound) > 0 {
		full["bound"] = bound
	}
	return full
}

// fieldsOf are the fields of an object in a tree.
func fieldsOf(tree map[string]any, path ...string) map[string]any {
	for _, name := range path {
		tree, _ = tree[name].(map[string]any)
	}
	return tree
}

func compareMaps(field string, theirs, ours map[string]any) (all []difference) {
	keys := append(sortedKeys(theirs), sortedKeys(ours)...)
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		all = append(all, compare(strings.TrimPrefix(field+"."+key, "."), theirs[key], ours[key])...)
	}
	return all
}

func compareLists(field string, theirs, ours []any) (all []difference) {
	if areTexts(theirs) && areTexts(ours) && field != "milestones" {
		for _, value := range theirs {
			if !slices.Contains(ours, value) {
				all = append(all, difference{fmt.Sprintf("%s{%s}", field, value), value.(string), none})
			}
		}
		for _, value := range ours {
			if !slices.Contains(theirs, value) {
				all = append(all, difference{fmt.Sprintf("%s{%s}", field, value), none, value.(string)})
			}
		}
		return all
	}
	for i := range max(len(theirs), len(ours)) {
		var a, b any
		if i < len(theirs) {
			a = theirs[i]
		}
		if i < len(ours) {
			b = ours[i]
		}
		all = append(all, compare(fmt.Sprintf("%s[%d]", field, i), a, b)...)
	}
	return all
}

func areTexts(list []any) bool {
	return !slices.ContainsFunc(list, func(value any) bool { _, ok := value.(string); return !ok })
}

func brief(value any) string {
	if value == nil {
		return none
	}
	text, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	const most = 400
	return string(text[:min(len(text), most)])
}

// pattern is of names of scenarios or of fields, with * for any text. A field's also
// covers what is below it.
type pattern struct {
	text   string
	regexp *regexp.Regexp
	used   bool
}

func newPattern(text string, below bool) (*pattern, error) {
	expression := strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, `.*`)
	if below {
		expression += `(?:[.\[{].*)?`
	}
	compiled, err := regexp.Compile(`^` + expression + `$`)
	return &pattern{text: text, regexp: compiled}, err
}

// allowed is a row of the table: in these scenarios, these fields may differ.
type allowed struct{ scenarios, fields []*pattern }

// table is the allowlist.
type table []*allowed

// readTable reads the table below a heading of a page: in its first two columns are
// scenarios and fields, each in backticks.
func readTable(path, heading string) (table, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var rows table
	below := false
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			below = strings.TrimLeft(line, "# ") == heading
		}
		if cells := strings.Split(line, "|"); below && len(cells) > 3 && strings.Contains(cells[1], "`") {
			row := &allowed{}
			if row.scenarios, err = patterns(cells[1], false); err != nil {
				return nil, err
			}
			if row.fields, err = patterns(cells[2], true); err != nil {
				return nil, err
			}
			if len(row.fields) == 0 {
				return nil, fmt.Errorf("%s: row %q names no field in backticks", path, line)
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%s: there is no table below %q", path, heading)
	}
	return rows, nil
}

func patterns(cell string, below bool) (list []*pattern, err error) {
	for i, text := range strings.Split(cell, "`") {
		if i%2 == 0 {
			continue
		}
		p, err := newPattern(text, below)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// allows marks what it uses.
func (t table) allows(scenario string, d difference) bool {
	found := false
	for _, row := range t {
		for _, s := range row.scenarios {
			if !s.regexp.MatchString(scenario) {
				continue
			}
			for _, f := range row.fields {
				if f.regexp.MatchString(d.field) {
					s.used, f.used, found = true, true, true
				}
			}
		}
	}
	return found
}

// unused are the patterns for which there is no difference any more.
func (t table) unused() (texts []string) {
	for _, row := range t {
		for _, p := range slices.Concat(row.scenarios, row.fields) {
			if !p.used {
				texts = append(texts, p.text+" (in the row of "+row.scenarios[0].text+")")
			}
		}
	}
	return texts
}
