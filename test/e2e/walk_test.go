package e2e

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/test/e2e/walkthrough"
)

const (
	migratePage  = "../../docs/migrate.md"
	walkPatience = 30 * time.Second
	// Output that the page does not have yet never comes.
	savePatience = 5 * time.Second
)

// walk runs the commands of docs/migrate.md. With $MIGRATE_PAGE,
// it writes the page to that file in $LAB_SCRATCH with the output of this run, and the
// transcript to standard output; otherwise output that differs from the page fails the test.
type walk struct {
	*env
	run  *walkthrough.Run
	page *walkthrough.Page
	save string
}

func (e *env) newWalk() *walk {
	e.t.Helper()
	w := &walk{env: e, save: savedPage(), run: &walkthrough.Run{
		Dir: e.t.TempDir(), Replace: e.place().Words(), Patience: walkPatience, Transcript: io.Discard,
	}}
	text, err := os.ReadFile(migratePage)
	if w.save != "" {
		w.run.Transcript, w.run.Patience = os.Stdout, savePatience
		if saved, err := os.ReadFile(w.save); err == nil {
			text = saved
		}
	}
	if err != nil {
		e.t.Fatal(err)
	}
	w.page = walkthrough.Parse(string(text))
	return w
}

// savedPage is empty if the page is compared only.
func savedPage() string {
	name := os.Getenv("MIGRATE_PAGE")
	if name == "" {
		return ""
	}
	return filepath.Join(os.Getenv("LAB_SCRATCH"), name)
}

// do runs the section below a heading. Every command must succeed.
func (w *walk) do(t *testing.T, heading string) {
	t.Helper()
	steps, err := w.page.Section(heading)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintf(w.run.Transcript, "\n# %s\n\n", strings.TrimLeft(heading, "# "))
	printed := make([]string, len(steps))
	for i, s := range steps {
		if printed[i], err = w.run.Do(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", migratePage, err)
		}
		if o := s.Output; w.save == "" && o != nil && !o.Shows(printed[i]) {
			t.Errorf("%s:%d: the page has\n%s\nit is\n%s\n`make migrate-transcripts` updates the page", migratePage, s.Line, o.Text, printed[i])
		}
	}
	if w.save == "" {
		return
	}
	for i := len(steps) - 1; i >= 0; i-- {
		if o := steps[i].Output; o != nil && !o.Shows(printed[i]) {
			w.page.Update(o, printed[i])
		}
	}
	if err := os.WriteFile(w.save, []byte(w.page.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// apply creates the objects in files of testdata, with server and export of this place.
func (e *env) apply(files ...string) {
	e.t.Helper()
	for _, file := range files {
		text, err := e.place().Read(filepath.Join("testdata", file))
		written := filepath.Join(e.t.TempDir(), filepath.Base(file))
		if err == nil {
			err = os.WriteFile(written, []byte(text), 0o600)
		}
		if err == nil {
			err = kubectl(e.t.Context(), "apply", "-f", written)
		}
		if err != nil {
			e.t.Fatal(err)
		}
	}
}
