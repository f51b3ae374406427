package rooms_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nfs-csi/nfs-csi/hack/internal/rooms"
)

func TestMeasure(t *testing.T) {
	const name = "github.com/nfs-csi/nfs-csi/hack/internal/rooms/testdata/room"
	got, err := rooms.Measure(t.Context(), "testdata", "./...")
	if err != nil {
		t.Fatal(err)
	}
	// a uses b, b uses c, c uses a, and d uses all three.
	want := []rooms.Room{{Package: name, Files: 4, Lines: 26, Types: 4, References: 6, Cycle: 3, Parameterized: 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("measure differs (-want +got):\n%s", diff)
	}
	var table strings.Builder
	if err := rooms.Print(&table, append(got, rooms.Room{Package: "other", Files: 2, Lines: 3})); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(table.String()), "\n")
	total := strings.Fields(lines[len(lines)-1])
	if diff := cmp.Diff([]string{"6", "29", "4", "1.0", "3", "2", "total"}, total); diff != "" {
		t.Errorf("totals differ (-want +got):\n%s", diff)
	}
}

func TestMeasureOfBrokenPackages(t *testing.T) {
	if got, err := rooms.Measure(t.Context(), "testdata", "./missing"); err == nil {
		t.Errorf("got %v, want an error", got)
	}
}
