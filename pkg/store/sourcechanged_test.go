package store

import (
	"errors"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A clone was killed half-way, and its source has gone since: nothing is left that
// nobody can complete, nor that keeps its directory.
func TestSourceOfAKilledCopyIsGone(t *testing.T) {
	killedClone(t, func(t *testing.T, l *lab, id volume.ID, req CreateRequest) {
		l.delete(t, id)
		_, err := l.Create(t.Context(), req)
		if err == nil { // it was whole
			return
		}
		if !errors.Is(err, volume.ErrNotFound) {
			t.Errorf("got %v, want ErrNotFound", err)
		}
		l.mustHave(t)
		l.mustHaveNoTemp(t)
		other := l.request("another")
		other.Params.SubDir = "new"
		if _, err := l.Create(t.Context(), other); err != nil {
			t.Errorf("the directory is not free: %v", err)
		}
	})
}

// The source's capacity may even have become more than the clone may have: it is
// enforced for neither.
func TestSourceOutgrewAKilledCopy(t *testing.T) {
	killedClone(t, func(t *testing.T, l *lab, id volume.ID, req CreateRequest) {
		if _, err := l.Expand(t.Context(), id, SizeRange{Required: 3 << 30}, nil); err != nil {
			t.Fatal(err)
		}
		v, err := l.Create(t.Context(), req)
		if err != nil || v.Capacity != 1<<30 && v.Capacity != req.Size.Limit {
			t.Errorf("made %+v, %v", v, err)
		}
		l.mustHaveNoTemp(t)
	})
}

// killedClone calls then after a clone of at most 2 GiB was killed, once for each step.
func killedClone(t *testing.T, then func(t *testing.T, l *lab, source volume.ID, req CreateRequest)) {
	t.Helper()
	for n := 1; ; n++ {
		l := newLab(t)
		id := l.create(t, "pvc-1")
		req := l.from("new", Source{Volume: &id})
		req.Size = SizeRange{Limit: 2 << 30}
		ctx, killed := l.killAt(t.Context(), l.Store, n)
		_, err := l.Create(ctx, req)
		if !killed() {
			if err != nil || n < 5 {
				t.Fatalf("no step %d, and %v", n, err)
			}
			return
		}
		l.Store = l.start(t)
		then(t, l, id, req)
		if t.Failed() {
			t.Fatalf("after being killed at step %d", n)
		}
	}
}
