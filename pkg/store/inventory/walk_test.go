package inventory

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// counted are records that count how often they are read.
type counted struct {
	session.Records
	below map[string][]string
	lists int
	reads atomic.Int64
}

func (c *counted) Below(dir string) ([]string, error) {
	c.lists++
	return c.below[dir], nil
}

func (c *counted) Read(subDir string) (catalog.Record, error) {
	c.reads.Add(1)
	if c.below[subDir] != nil {
		return catalog.Record{}, fs.ErrNotExist
	}
	return catalog.Record{Name: path.Base(subDir), SubDir: subDir}, nil
}

// A page of a list of 10,000 volumes costs the reading of its own records, and
// the names are read once for all pages.
func TestAPageReadsItsOwnRecords(t *testing.T) {
	flat, nested := &counted{below: map[string][]string{}}, &counted{below: map[string][]string{}}
	for i := range 10000 {
		flat.below[""] = append(flat.below[""], fmt.Sprintf("pvc-%05d", i))
		team := fmt.Sprintf("team-%03d", i/100)
		if i%100 == 0 {
			nested.below[""] = append(nested.below[""], team)
		}
		nested.below[team] = append(nested.below[team], fmt.Sprintf("pvc-%05d", i))
	}
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	const page = 500
	for name, c := range map[string]*counted{"flat": flat, "nested": nested} {
		n, after, total := &names{below: map[string][]string{}}, "", 0
		for {
			before := c.reads.Load()
			w := &walker{root: root, records: c, names: n, want: page}
			if err := w.walk(t.Context(), "", after); err != nil {
				t.Fatal(err)
			}
			if read := c.reads.Load() - before; read > page+batch {
				t.Fatalf("%s: a page of %d after %q read %d records", name, page, after, read)
			}
			if len(w.found) == 0 {
				break
			}
			total, after = total+len(w.found), w.found[len(w.found)-1].SubDir
		}
		if total != 10000 || c.lists > len(c.below) {
			t.Errorf("%s: %d volumes, %d readings of %d directories", name, total, c.lists, len(c.below))
		}
	}
}

// Names that were read for a page serve the next pages, and not for long.
func TestListingAges(t *testing.T) {
	l := listings{exports: map[volume.Export]*names{}}
	export := volume.Export{Server: "nfs.test", Share: "/e"}
	first := l.names(export, true)
	if l.names(export, false) != first {
		t.Error("the next page has other names")
	}
	first.read = first.read.Add(-listingAge - time.Second)
	second := l.names(export, false)
	if second == first {
		t.Error("names of more than a minute ago serve a page")
	}
	if l.names(export, true) == second {
		t.Error("a new listing has the names of the one before")
	}
}
