package nfs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/tree"
)

// A change to a directory makes the client forget its listing, so a removal that read
// little of it at a time would fetch most of it again and again.
func TestRemovalFetchesListingOnce(t *testing.T) {
	const (
		entries = 10_000
		// An entry with its attributes is some 300 bytes; a few batches overlap.
		bytesEach = 1 << 10
	)
	versions(t, func(t *testing.T, disk, version string) {
		e, dir := export(t, disk, "rw,no_root_squash", 0o777)
		at := mounted(t, e, version, "nosharecache")
		if err := os.Mkdir(filepath.Join(dir, "wide"), 0o777); err != nil {
			t.Fatal(err)
		}
		for i := range entries {
			writeFile(t, filepath.Join(dir, "wide", fmt.Sprintf("entry-%d", i)), "")
		}
		in, err := os.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		before := listedBytes(t, at)
		if _, err := (tree.Removal{Workers: 32}).Remove(t.Context(), in, "wide"); err != nil {
			t.Fatal(err)
		}
		listed := listedBytes(t, at) - before
		if listed == 0 || listed > entries*bytesEach {
			t.Errorf("the server sent %d bytes of listings, want at most %d for each of %d entries", listed, bytesEach, entries)
		}
	})
}

// listedBytes is how many bytes of answers to READDIR and READDIRPLUS the client has
// received for a mount (mountstats in proc_pid_mountstats(5)).
func listedBytes(t *testing.T, target string) (received int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountstats")
	if err != nil {
		t.Fatal(err)
	}
	_, mount, found := strings.Cut(string(b), " mounted on "+target+" ")
	if !found {
		t.Fatalf("no statistics of %s", target)
	}
	mount, _, _ = strings.Cut(mount, "\ndevice ")
	for line := range strings.Lines(mount) {
		// NAME: operations transmissions timeouts sent received ...
		if f := strings.Fields(line); len(f) > 5 && strings.HasPrefix(f[0], "READDIR") {
			n, err := strconv.Atoi(f[5])
			if err != nil {
				t.Fatal(err)
			}
			received += n
		}
	}
	return received
}
