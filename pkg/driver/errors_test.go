package driver

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

// TestErrorsAreDocumented checks docs/errors.md against the mapping: every code with
// every text, nothing else, and a reason and a remedy for each.
func TestErrorsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	type row struct{ code, text string }
	want, got := map[row]bool{{codes.Internal.String(), ""}: true}, map[row]bool{}
	for _, m := range mapping() {
		want[row{m.code.String(), m.err.Error()}] = true
	}
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || !strings.HasPrefix(cells[0], " `") {
			continue
		}
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " `")
		}
		r := row{cells[0], cells[1]}
		if got[r] {
			t.Errorf("%v is there twice", r)
		}
		got[r] = true
		if cells[2] == "" || cells[3] == "" {
			t.Errorf("%v has no reason or no remedy", r)
		}
	}
	for r := range want {
		if !got[r] {
			t.Errorf("docs/errors.md lacks %q", r)
		}
	}
	for r := range got {
		if !want[r] {
			t.Errorf("docs/errors.md has %q, which no error becomes", r)
		}
	}
}
