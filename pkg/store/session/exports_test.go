package session_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

type lab struct {
	*session.Exports
	fake   *nfsmounttest.Fake
	target session.Target
	dir    string // the export on the server
}

func newLab(t *testing.T) *lab {
	t.Helper()
	export := volume.Export{Server: "nfs.test", Share: "/export"}
	l := &lab{fake: nfsmounttest.NewFake(), dir: t.TempDir(), target: session.Target{Key: session.Key{Export: export, SubDir: "pvc-1"}}}
	l.fake.AddExport(export, l.dir)
	shares, err := share.New(t.Context(), share.Config{Mounter: l.fake, Dir: t.TempDir(), IdleTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	l.Exports = session.New(session.Config{
		Shares: shares, Opened: func(session.Target) {}, Step: func(ctx context.Context, _ string) error { return ctx.Err() },
	})
	t.Cleanup(func() {
		l.Wait()
		if err := shares.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *lab) mustDo(t *testing.T, job func(context.Context, *session.Session) error) {
	t.Helper()
	if err := l.Do(t.Context(), l.target, job); err != nil {
		t.Fatal(err)
	}
}

func noop(context.Context, *session.Session) error { return nil }

// staleOnce fails with ESTALE in its first run and counts the runs.
func staleOnce(runs *int) func(context.Context, *session.Session) (string, error) {
	return func(context.Context, *session.Session) (string, error) {
		if *runs++; *runs == 1 {
			return "first", fmt.Errorf("open: %w", unix.ESTALE)
		}
		return "second", nil
	}
}

func TestOnlyDoCreatesTheCatalog(t *testing.T) {
	l := newLab(t)
	meta := filepath.Join(l.dir, volume.MetaDir)
	mustView := func(wantCatalog bool) {
		t.Helper()
		err := l.View(t.Context(), l.target, func(_ context.Context, s *session.Session) error {
			if (s.Cat != nil) != wantCatalog {
				t.Errorf("the session has a catalog: %t, want %t", s.Cat != nil, wantCatalog)
			}
			if _, err := s.Records().Read("pvc-1"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("reading a record: %v, want ErrNotExist", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	mustView(false)
	if _, err := os.Lstat(meta); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after View: %v, want no catalog", err)
	}
	l.mustDo(t, func(_ context.Context, s *session.Session) error {
		if s.Cat == nil {
			t.Error("Do opened no catalog")
		}
		return nil
	})
	if _, err := os.Lstat(meta); err != nil {
		t.Errorf("after Do: %v", err)
	}
	mustView(true)
}

func TestStaleJobIsRetried(t *testing.T) {
	l := newLab(t)
	runs := 0
	got, err := session.Result(t.Context(), l.Do, l.target, staleOnce(&runs))
	if err != nil || got != "second" || runs != 2 {
		t.Errorf("%q, %v after %d runs, want the result of the second", got, err, runs)
	}
	if n := l.fake.MountCalls(); n != 1 {
		t.Errorf("%d mounts, want 1: the mount itself was not stale", n)
	}
}

func TestStaleMountIsInvalidated(t *testing.T) {
	l := newLab(t)
	l.mustDo(t, noop)
	// The open catalog is no longer that of the export.
	if err := os.Rename(filepath.Join(l.dir, volume.MetaDir), filepath.Join(l.dir, "old")); err != nil {
		t.Fatal(err)
	}
	runs := 0
	if err := l.On(t.Context(), l.target, func(ctx context.Context, s *session.Session) error {
		_, err := staleOnce(&runs)(ctx, s)
		return err
	}); err != nil || runs != 2 {
		t.Errorf("%v after %d runs, want 2", err, runs)
	}
	if n := l.fake.MountCalls(); n != 2 {
		t.Errorf("%d mounts, want 2: the first was stale", n)
	}
}

func TestStaleJobFailsInTheEnd(t *testing.T) {
	l := newLab(t)
	runs := 0
	got, err := session.Result(t.Context(), l.View, l.target, func(context.Context, *session.Session) (string, error) {
		runs++
		return "partial", unix.ESTALE
	})
	if !errors.Is(err, volume.ErrStale) || !errors.Is(err, unix.ESTALE) || got != "" || runs != 4 {
		t.Errorf("%q, %v after %d runs, want ErrStale after 4 and no result", got, err, runs)
	}
}

func TestOtherErrorsAreNotRetried(t *testing.T) {
	l := newLab(t)
	for _, want := range []error{volume.ErrOwned, volume.ErrInProgress, fs.ErrNotExist} {
		runs := 0
		err := l.Do(t.Context(), l.target, func(context.Context, *session.Session) error {
			runs++
			return want
		})
		if !errors.Is(err, want) || runs != 1 {
			t.Errorf("%v after %d runs, want %v after 1", err, runs, want)
		}
	}
}

func TestHungJobLetsCallersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		hung := make(chan struct{})
		revive := make(chan func(), 1)
		err := l.Do(t.Context(), l.target, func(context.Context, *session.Session) error {
			revive <- l.fake.Hang(l.target.Key.Export.Server)
			<-hung
			return nil
		})
		if !errors.Is(err, volume.ErrUnreachable) {
			t.Errorf("got %v, want ErrUnreachable", err)
		}
		began := time.Now()
		if err := l.Do(t.Context(), l.target, noop); !errors.Is(err, volume.ErrUnreachable) || time.Since(began) >= session.AskAgain {
			t.Errorf("the next caller got %v after %s, want ErrUnreachable at once", err, time.Since(began))
		}
		(<-revive)()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Do(ctx, l.target, noop); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that the hung job keeps the lock", err)
		}
		other := l.target
		other.Key.SubDir = "pvc-2"
		if err := l.Do(t.Context(), other, noop); err != nil {
			t.Errorf("on another volume: %v", err)
		}
		close(hung)
		l.mustDo(t, noop)
		l.Wait()
		if n := l.Busy(); n != 0 {
			t.Errorf("%d servers are busy after the last job", n)
		}
	})
}

func TestPanicBecomesAnError(t *testing.T) {
	l := newLab(t)
	if err := l.Do(t.Context(), l.target, func(context.Context, *session.Session) error { panic("at the job") }); err == nil {
		t.Error("a job that panics succeeded")
	}
	l.mustDo(t, noop) // the lock is released
}
