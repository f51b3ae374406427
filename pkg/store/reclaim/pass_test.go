package reclaim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// A small volume does not wait for a large one.
func TestReclaimTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{Rate: 100})
		large, small := l.fill(t, "large", 1000), l.fill(t, "small", 5)
		l.discard(t, large)
		time.Sleep(2 * time.Second)
		l.discard(t, small)
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if l.inTrash(t, "small") != 0 || l.inTrash(t, "large") != 1 {
			t.Errorf("in the trash: %d small ones, %d large", l.inTrash(t, "small"), l.inTrash(t, "large"))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if b := l.Backlog()[0]; b != (Backlog{Export: l.target.Key.Export, Removed: 1007}) {
			t.Errorf("backlog %+v", b)
		}
	})
}

// Two large volumes shrink together.
func TestReclaimSharesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{Rate: 100})
		names := []string{l.fill(t, "a", 800), l.fill(t, "b", 800)}
		for _, name := range names {
			l.discard(t, name)
		}
		time.Sleep(2*fullSlice + 2*time.Second)
		synctest.Wait()
		for _, name := range names {
			files, err := filepath.Glob(filepath.Join(l.dir, ".nfs-csi/trash", name+".*", "*"))
			if err != nil || len(files) > 400 || len(files) < 50 {
				t.Errorf("%d files of %s are left, %v, want 50 to 400", len(files), name, err)
			}
		}
		time.Sleep(5 * time.Second)
	})
}

// A large volume is removed after all others in the end, but it is removed.
func TestReclaimLargeVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, Config{Rate: 10})
		l.discard(t, l.fill(t, "large", 800))
		time.Sleep((manySlices + 1) * fullSlice)
		l.discard(t, l.fill(t, "other", 100))
		time.Sleep(fullSlice)
		synctest.Wait()
		if b := l.Backlog()[0]; b.Late != (Late{Long: 1}) || b.Trees != 2 {
			t.Errorf("backlog %+v, want one long volume", b)
		}
		time.Sleep(2 * manySlices * fullSlice)
		synctest.Wait()
		if b := l.Backlog()[0]; b != (Backlog{Export: l.target.Key.Export, Removed: 902}) {
			t.Errorf("backlog %+v", b)
		}
	})
}

// writer writes to a deleted volume, as a client that has it mounted: always, or when
// it is empty.
func (l *lab) writer(t *testing.T, name string, every time.Duration, always bool) (stop func()) {
	t.Helper()
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			case <-time.After(every):
			}
			found, err := filepath.Glob(filepath.Join(l.dir, ".nfs-csi/trash", name+".*"))
			for _, dir := range found {
				if holds, _ := os.ReadDir(dir); always || len(holds) == 0 {
					err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprint("new-", i)), nil, 0o600))
				}
			}
			if err != nil {
				t.Error(err)
			}
		}
	}()
	return func() { close(end); <-ended }
}

// A volume that is written to as fast as it is emptied delays no other. It is late, as
// the metrics show, and removed when the writes end.
func TestReclaimWhileWritten(t *testing.T) {
	for what, tt := range map[string]struct {
		every  time.Duration
		always bool
	}{
		"when it is empty": {15 * time.Millisecond, false},
		"always":           {45 * time.Millisecond, true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, Config{Rate: 20})
				l.discard(t, l.fill(t, "busy", 30))
				stop := l.writer(t, "busy", tt.every, tt.always)
				time.Sleep((manySlices + 4) * fullSlice)
				synctest.Wait()
				if b := l.Backlog()[0]; b.Late.Written+b.Late.Long != 1 || !tt.always && b.Late.Written != 1 || b.Trees != 1 {
					t.Errorf("backlog %+v, want one late volume", b)
				}
				for i := range 3 {
					l.discard(t, l.fill(t, fmt.Sprint("pvc-", i), 5))
				}
				time.Sleep(fullSlice)
				synctest.Wait()
				if n := l.inTrash(t, "pvc-"); n != 0 {
					t.Errorf("%d volumes wait for the busy one", n)
				}
				stop()
				time.Sleep(2 * lateMax)
				synctest.Wait()
				if b := l.Backlog()[0]; b.Late != (Late{}) || b.Trees != 0 || l.inTrash(t, "busy") != 0 {
					t.Errorf("in the end: %+v", b)
				}
			})
		})
	}
}
