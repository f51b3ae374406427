package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A server that dies under a job holds up the job and its volume; callers are
// told, the next ones at once.
func TestServerDiesUnderAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.create(t, "pvc-0")
		died := make(chan func())
		back := make(chan struct{})
		l.step = func(_ context.Context, name string) error {
			if name == "create directory" {
				died <- l.fake.Hang(l.export.Server)
				<-back
			}
			return nil
		}
		mustBeUnreachable := func(limit time.Duration) {
			t.Helper()
			began := time.Now()
			_, err := l.Create(t.Context(), l.request("pvc-1"))
			if !errors.Is(err, volume.ErrUnreachable) || !strings.Contains(err.Error(), l.export.Server) {
				t.Errorf("got %v, want ErrUnreachable naming the server", err)
			}
			if took := time.Since(began); took > limit {
				t.Errorf("took %s, at most %s is allowed", took, limit)
			}
		}
		release := make(chan func(), 1)
		go func() { release <- <-died }()
		var waits sync.WaitGroup
		waits.Go(func() { mustBeUnreachable(10 * time.Second) })
		waits.Go(func() { mustBeUnreachable(10 * time.Second) }) // for the first one's lock
		waits.Wait()
		mustBeUnreachable(2 * time.Second)
		(<-release)()
		l.step = func(context.Context, string) error { return nil }
		close(back)
		l.create(t, "pvc-1")
	})
}

// A copy hangs with the server of its source as with its own. Waiting, repeated and
// deleting calls name the server that does not answer.
func TestServerDiesUnderACopy(t *testing.T) {
	for _, dead := range []string{"source.test", "nfs.test"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			source := l.createOn(t, l.addExport(t, "source.test"), "pvc-1")
			back := make(chan struct{})
			var revive func()
			l.step = func(_ context.Context, name string) error {
				if name == "copy" {
					revive = l.fake.Hang(dead)
					<-back
				}
				return nil
			}
			clone := func() error {
				_, err := l.Create(t.Context(), l.from("new", Source{Volume: &source}))
				return err
			}
			for what, call := range map[string]func() error{
				"clone": clone, "clone again": clone,
				"delete": func() error {
					synctest.Wait()
					return l.Delete(t.Context(), l.id("new"), nil)
				},
			} {
				if what == "delete" {
					go clone() //nolint:errcheck // that it runs is all that is needed
				}
				began := time.Now()
				err := call()
				if !errors.Is(err, volume.ErrUnreachable) || !strings.Contains(err.Error(), dead) || time.Since(began) > 10*time.Second {
					t.Errorf("%s after %s: %v, want that %s does not answer", what, time.Since(began), err, dead)
				}
			}
			revive()
			l.step = func(ctx context.Context, _ string) error { return ctx.Err() }
			close(back)
			l.delete(t, l.id("new"))
			l.mustHaveNoTemp(t)
		})
	}
}

// What has been copied is found again without its source.
func TestCopyIsFoundWithoutItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		source := l.createOn(t, l.addExport(t, "source.test"), "pvc-1")
		for _, dead := range []string{"none", "source.test"} {
			defer l.fake.Hang(dead)()
			time.Sleep(time.Minute) // what answered a moment ago is not asked again
			if _, err := l.Create(t.Context(), l.from("new", Source{Volume: &source})); err != nil {
				t.Errorf("while %s hangs: %v", dead, err)
			}
		}
	})
}

// A volume to retain can be deleted without its server, whether the export was mounted or
// never could be; any other waits for it.
func TestRetainedVolumeIsDeletedWithoutItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		id := l.createAs(t, l.classed("pvc-1", "team/data", volume.OnDeleteRetain))
		other := l.create(t, "pvc-2")
		revive := l.fake.Hang(l.export.Server)
		time.Sleep(time.Minute) // what answered a moment ago is not asked again
		for what, id := range map[string]volume.ID{
			"mounted": id, "away": {Export: volume.Export{Server: "away.test", Share: "/e"}, SubDir: "v", Name: "v", OnDelete: volume.OnDeleteRetain},
			"no such share": {Export: volume.Export{Server: "nfs.test", Share: "/none"}, SubDir: "v", Name: "v", OnDelete: volume.OnDeleteRetain},
		} {
			if err := l.Delete(t.Context(), id, nil); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := l.Delete(t.Context(), other, nil); !errors.Is(err, volume.ErrUnreachable) {
			t.Errorf("not retained: %v, want ErrUnreachable", err)
		}
		revive()
		l.record(t, "team/data")
		l.delete(t, id)
		l.mustHave(t, append(live("pvc-2"), "team", "team/data", retained(t, "team/data"))...)
	})
}
