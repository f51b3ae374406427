package share

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func TestServerThatDiedIsFoundBeforeUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		l.acquire(t, l.a).Release()
		release := l.fake.Hang(l.a.Server)
		time.Sleep(2 * fresh)
		for range 3 {
			_, err := l.cache.Acquire(t.Context(), l.a, nil)
			if !errors.Is(err, volume.ErrUnreachable) || !strings.Contains(err.Error(), l.a.Server) {
				t.Errorf("got %v, want ErrUnreachable naming the server", err)
			}
		}
		if err := l.cache.Answers(t.Context(), l.a); !errors.Is(err, volume.ErrUnreachable) {
			t.Errorf("answers: %v", err)
		}
		if err := l.cache.Answers(t.Context(), l.b); err != nil {
			t.Errorf("not mounted: %v", err)
		}
		if s := l.cache.States(); len(s) != 1 || s[0].Answered || s[0].Export != l.a || s[0].Uses != 0 {
			t.Errorf("states %+v", s)
		}
		l.acquire(t, l.b).Release()
		release()
		l.acquire(t, l.a).Release()
		if n := l.fake.MountCalls(); n != 2 {
			t.Errorf("%d mounts, want that the one of the server that came back is used", n)
		}
		for _, s := range l.cache.States() {
			if !s.Answered {
				t.Errorf("after it came back: %+v", s)
			}
		}
		l.close(t)
	})
}

func TestStaleShareIsRemounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		user := l.acquire(t, l.a)
		if err := os.RemoveAll(l.dirA); err != nil {
			t.Fatal(err)
		}
		remade := t.TempDir()
		if err := os.WriteFile(filepath.Join(remade, "new"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		l.fake.AddExport(l.a, remade)
		time.Sleep(2 * fresh)
		h := l.acquire(t, l.a)
		if _, err := h.Root().Stat("new"); err != nil {
			t.Errorf("shows something else: %v", err)
		}
		h.Release()
		user.Release()
		l.close(t)
	})
}

func TestMountThatTakesLongIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.fake.Hang(l.a.Server)()
		began := time.Now()
		if _, err := l.cache.Acquire(context.Background(), l.a, nil); !errors.Is(err, volume.ErrUnreachable) || !strings.Contains(err.Error(), "a.test:/e") {
			t.Errorf("got %v, want ErrUnreachable naming the export", err)
		}
		if took := time.Since(began); took != DefaultMountWait {
			t.Errorf("gave up after %s", took)
		}
		l.close(t)
	})
}
