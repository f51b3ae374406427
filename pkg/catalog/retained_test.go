package catalog

import (
	"strings"
	"testing"
	"time"
)

func TestForgetRetained(t *testing.T) {
	before, adopter := record("data"), record("data")
	before.Name, adopter.Name = "pvc-1", "pvc-2"
	later := adopter
	later.Created = later.Created.Add(time.Nanosecond)
	elsewhere := record("elsewhere") // with a note named by the volume, as the first ones were
	for name, tt := range map[string]struct {
		note  Record
		stays bool
	}{
		"of the volume before":             {before, false},
		"of an earlier one of its name":    {later, false},
		"of itself, which has ended since": {adopter, true},
		"of another directory":             {elsewhere, true},
	} {
		cat, _ := open(t)
		must(t, cat.setNote(retainedDir+"/data", tt.note))
		must(t, cat.ForgetRetained(adopter))
		if _, err := cat.readNote(retainedDir, "data"); (err == nil) != tt.stays {
			t.Errorf("the note %s: %v, want that it stays %v", name, err, tt.stays)
		}
	}
	cat, _ := open(t)
	must(t, cat.ForgetRetained(adopter)) // there is none
}

// Notes are found for directories whose names are too long or no file names.
func TestRetainedByAnyName(t *testing.T) {
	long := strings.Repeat("n", 200)
	for _, subDir := range []string{"pvc-1", "team/data", long + "/a", long + "/b"} {
		cat, _ := open(t)
		if id, err := cat.Retained(subDir, "pvc-1"); err != nil || id != "" {
			t.Errorf("%s: %q, %v, want none", subDir, id, err)
		}
		r := record(subDir)
		must(t, cat.NoteRetained(r))
		for _, name := range []string{"pvc-1", "of another volume", ""} {
			if id, err := cat.Retained(subDir, name); err != nil || id != r.ID {
				t.Errorf("%s: %q, %v, want %s", subDir, id, err, r.ID)
			}
		}
		if id, err := cat.Retained("other", "pvc-1"); err != nil || id != "" {
			t.Errorf("other: %q, %v, want none", id, err)
		}
	}
}
