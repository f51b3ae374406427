package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// classed is a request by a class with a subDir and a policy.
func (l *lab) classed(name, subDir string, policy volume.OnDelete) CreateRequest {
	req := l.request(name)
	req.Params.SubDir, req.Params.OnDelete = subDir, policy
	return req
}

func (l *lab) createAs(t *testing.T, req CreateRequest) volume.ID {
	t.Helper()
	v, err := l.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return v.ID
}

func (l *lab) delete(t *testing.T, id volume.ID) {
	t.Helper()
	if err := l.Delete(t.Context(), id, nil); err != nil {
		t.Errorf("delete %s: %v", id, err)
	}
}

func TestArchive(t *testing.T) {
	l := newLab(t)
	id := l.createAs(t, l.classed("pvc-1", "team/data", volume.OnDeleteArchive))
	if want := "nfs.test#export#team/data#pvc-1#archive"; id.String() != want {
		t.Errorf("ID %s, want %s", id, want)
	}
	l.put(t, "team/data/file")
	for range 2 {
		l.delete(t, id)
		l.mustHave(t, "team", "team/archived-data", "team/archived-data/file")
	}
}

// A second archive of a name leaves the first one as it is, empty or not.
func TestArchiveKeepsBoth(t *testing.T) {
	l := newLab(t)
	want := []string{}
	for i, name := range []string{"pvc-1", "pvc-2", "pvc-3", "pvc-3", "pvc-3"} {
		id := l.createAs(t, l.classed(name, "data", volume.OnDeleteArchive))
		if i != 1 { // that one is empty
			l.put(t, fmt.Sprintf("data/%d", i))
		}
		l.delete(t, id)
		l.delete(t, id)
		dir := []string{"archived-data", "archived-data.pvc-2", "archived-data.pvc-3", "archived-data.pvc-3.2", "archived-data.pvc-3.3"}[i]
		if want = append(want, dir); i != 1 {
			want = append(want, fmt.Sprintf("%s/%d", dir, i))
		}
		l.mustHave(t, slices.Clone(want)...)
	}
}

// What a live volume has, or has below, is not an archive's name, though it
// looks free.
func TestArchiveSparesLiveVolumes(t *testing.T) {
	l := newLab(t)
	l.createAs(t, l.classed("pvc-9", "archived-data", ""))
	l.createAs(t, l.classed("pvc-8", "archived-data.pvc-1/x", ""))
	for _, dir := range []string{"archived-data", "archived-data.pvc-1/x", "archived-data.pvc-1"} {
		if err := os.Remove(filepath.Join(l.dir, dir)); err != nil {
			t.Fatal(err)
		}
	}
	id := l.createAs(t, l.classed("pvc-1", "data", volume.OnDeleteArchive))
	l.put(t, "data/file")
	l.delete(t, id)
	if _, err := os.Stat(filepath.Join(l.dir, "archived-data.pvc-1.2/file")); err != nil {
		t.Error(err)
	}
}

func TestArchiveOfAPredecessor(t *testing.T) {
	l := newLab(t)
	l.put(t, "ns/claim/file")
	id, err := volume.ParseID("nfs.test#export#ns/claim#pvc-1#archive")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l.delete(t, id)
		l.mustHave(t, "ns", "ns/archived-claim", "ns/archived-claim/file")
	}
}

// One that is gone is no error, also where its directory would be in a volume now.
func TestArchiveOfAVolumeThatIsGone(t *testing.T) {
	l := newLab(t)
	id := l.createAs(t, l.classed("pvc-1", "team/data", volume.OnDeleteArchive))
	l.delete(t, id)
	if err := os.RemoveAll(filepath.Join(l.dir, "team")); err != nil {
		t.Fatal(err)
	}
	l.create(t, "team")
	l.delete(t, id)
	l.mustHave(t, live("team")...)
}

// killedDelete kills the delete of a volume at each of its steps in turn,
// repeats it, and has the outcome checked.
func killedDelete(t *testing.T, minSteps int, arrange func(*lab) volume.ID, check func(*lab)) {
	t.Helper()
	for n := 1; ; n++ {
		l := newLab(t)
		id := arrange(l)
		ctx, killed := l.killAt(t.Context(), l.Store, n)
		err := l.Delete(ctx, id, nil)
		if !killed() {
			if err != nil || n <= minSteps {
				t.Fatalf("no step %d, and %v", n, err)
			}
			return
		}
		if err == nil {
			t.Fatalf("killed at step %d and answered", n)
		}
		l.Store = l.start(t)
		for range 2 {
			l.delete(t, id)
			check(l)
		}
		if t.Failed() {
			t.Fatalf("after a kill at step %d", n)
		}
	}
}

func TestKilledArchiveIsCompleted(t *testing.T) {
	killedDelete(t, 4,
		func(l *lab) volume.ID {
			id := l.createAs(t, l.classed("pvc-1", "team/data", volume.OnDeleteArchive))
			l.put(t, "team/data/file")
			return id
		},
		func(l *lab) { l.mustHave(t, "team", "team/archived-data", "team/archived-data/file") })
}

func TestKilledSecondArchiveIsCompleted(t *testing.T) {
	killedDelete(t, 5,
		func(l *lab) volume.ID {
			l.put(t, "archived-data/first")
			id := l.createAs(t, l.classed("pvc-1", "data", volume.OnDeleteArchive))
			l.put(t, "data/second")
			return id
		},
		func(l *lab) {
			l.mustHave(t, "archived-data", "archived-data/first", "archived-data.pvc-1", "archived-data.pvc-1/second")
		})
}

func TestKilledArchiveOfAPredecessorIsCompleted(t *testing.T) {
	killedDelete(t, 4,
		func(l *lab) volume.ID {
			l.put(t, "archived-data/first")
			l.put(t, "data/second")
			id := l.id("data")
			id.Name, id.OnDelete = "pvc-1", volume.OnDeleteArchive
			return id
		},
		func(l *lab) {
			l.mustHave(t, "archived-data", "archived-data/first", "archived-data.pvc-1", "archived-data.pvc-1/second")
		})
}

func TestKilledRetainIsCompleted(t *testing.T) {
	killedDelete(t, 1,
		func(l *lab) volume.ID {
			id := l.createAs(t, l.classed("pvc-1", "team/data", volume.OnDeleteRetain))
			l.put(t, "team/data/file")
			return id
		},
		func(l *lab) { l.mustHave(t, "team", "team/data", "team/data/file", retained(t, "team/data")) })
}

func TestKilledNestedDeleteIsCompleted(t *testing.T) {
	killedDelete(t, 3,
		func(l *lab) volume.ID {
			id := l.createAs(t, l.classed("pvc-1", "a/b/c", volume.OnDeleteDelete))
			l.put(t, "a/b/c/file")
			return id
		},
		func(l *lab) { l.mustHave(t) })
}

// The later default of a driver does not decide about a volume made before it.
func TestDefaultPolicies(t *testing.T) {
	l := newLab(t)
	before := l.create(t, "pvc-1")
	l.cfg.OnDelete = volume.OnDeleteArchive
	after := l.create(t, "pvc-2")
	l.put(t, "legacy/file")
	l.delete(t, before)
	l.delete(t, after)
	l.delete(t, l.id("legacy"))
	l.mustHave(t, "archived-legacy", "archived-legacy/file", "archived-pvc-2")
}

func TestArchiveIsNoVolume(t *testing.T) {
	l := newLab(t)
	id := l.createAs(t, l.classed("pvc-1", "data", volume.OnDeleteArchive))
	ctx, killed := l.killAt(t.Context(), l.Store, 4)
	if err := l.Delete(ctx, id, nil); err == nil || !killed() {
		t.Fatalf("not killed: %v", err)
	}
	l.Store = l.start(t)
	if _, err := l.Create(t.Context(), l.classed("pvc-2", "archived-data", "")); !errors.Is(err, volume.ErrOwned) {
		t.Errorf("a name that an archive is to have: %v, want ErrOwned", err)
	}
	l.delete(t, l.id("archived-data"))
	l.delete(t, id)
	l.mustHave(t, "archived-data")
}

// What archived- makes longer than a volume's path may be is archived like any other.
func TestArchiveOfALongPath(t *testing.T) {
	l := newLab(t)
	subDir := strings.Repeat(strings.Repeat("d", 200)+"/", 5) + "volume-of-19-bytes."
	id := l.createAs(t, l.classed("pvc-1", subDir, volume.OnDeleteArchive))
	l.put(t, subDir+"/data")
	for range 2 {
		l.delete(t, id)
	}
	archived := filepath.Join(filepath.Dir(subDir), "archived-"+filepath.Base(subDir), "data")
	if got := l.content(t, archived); got != subDir+"/data" {
		t.Errorf("archived %q", got)
	}
	l.mustHaveNoTemp(t)
}
