package tree

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fewFiles is how many files may be open with 4 workers.
const fewFiles = 256

func TestRemoveDeepNeedsNoMore(t *testing.T) {
	_, dir := quick(t, testDir{"deep": testDir{}})
	entries := 1 + nest(t, filepath.Join(dir, "deep"), strings.Repeat("n", 200), 50000)
	got := removalOrder{dir: dir, Name: "deep", Workers: 4, Files: fewFiles}.run(t)
	t.Logf("%+v", got)
	if got.Err != "" || got.Left != "" || got.Removed != entries || got.PeakMiB > boundMiB {
		t.Errorf("got %+v, want %d removed in %d MiB", got, entries, boundMiB)
	}
	mustHold(t, dir)
}

// Ten times as many entries in a directory need no more memory.
func TestRemoveWideNeedsNoMore(t *testing.T) {
	const few, many = 10000, 100000
	peak := map[int]float64{}
	for _, n := range []int{few, many} {
		r, dir := quick(t, testDir{"wide": testDir{}})
		for i := range n {
			f, err := r.OpenFile(fmt.Sprintf("wide/entry-%0180d", i), os.O_CREATE|os.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			f.Close()
		}
		got := removalOrder{dir: dir, Name: "wide", Workers: 4, Files: fewFiles}.run(t)
		t.Logf("%+v", got)
		if got.Err != "" || got.Left != "" || got.Removed != int64(n)+1 || got.PeakMiB > boundMiB {
			t.Errorf("got %+v, want %d removed in %d MiB", got, n+1, boundMiB)
		}
		peak[n] = got.PeakMiB
	}
	if grown := peak[many] - peak[few]; grown > 4 {
		t.Errorf("with %d entries %.1f MiB, with %d %.1f", few, peak[few], many, peak[many])
	}
}
