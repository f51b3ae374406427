package store

import (
	"errors"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// A clone was killed half-way, and its source has become too large for it since:
// nothing is left that nobody can complete, nor that keeps its directory.
func TestSourceOutgrewAKilledCopy(t *testing.T) {
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
		if _, err := l.Expand(t.Context(), id, SizeRange{Required: 3 << 30}, nil); err != nil {
			t.Fatal(err)
		}
		_, err = l.Create(t.Context(), req)
		if err == nil { // it was whole
			continue
		}
		if !errors.Is(err, volume.ErrOutOfRange) {
			t.Errorf("after being killed at step %d: %v, want ErrOutOfRange", n, err)
		}
		l.mustHave(t, live("pvc-1")...)
		l.mustHaveNoTemp(t)
		other := l.request("another")
		other.Params.SubDir = "new"
		if _, err := l.Create(t.Context(), other); err != nil {
			t.Errorf("the directory is not free: %v", err)
		}
	}
}
