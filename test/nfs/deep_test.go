package nfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// deletionsVariable makes this program a controller that deletes volumes.
const deletionsVariable = "NFS_TEST_DELETIONS"

// deletions are what such a controller deletes, one after the other, and deletionTimes
// after how long each was gone from the trash, and what that took.
type (
	deletions struct {
		Export  volume.Export
		Version string
		Names   []string
		Mounts  string
	}
	deletionReport struct {
		Gone    map[string]time.Duration
		Status  string // /proc/self/status
		PeakFDs int
	}
)

func deleting() {
	var d deletions
	err := json.Unmarshal([]byte(os.Getenv(deletionsVariable)), &d)
	if err == nil {
		var report deletionReport
		if report, err = d.carryOut(context.Background()); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(report)
		}
	}
	if err != nil {
		panic(err)
	}
	os.Exit(0)
}

func (d deletions) carryOut(ctx context.Context) (report deletionReport, err error) {
	s, done, err := volumes(ctx, d.Mounts)
	if err != nil {
		return report, err
	}
	began := map[string]time.Time{}
	for _, name := range d.Names {
		id := volume.ID{Export: d.Export, SubDir: name, Name: name}
		if err := s.Delete(ctx, id, []string{d.Version}); err != nil {
			return report, err
		}
		began[name] = time.Now()
	}
	report.Gone = map[string]time.Duration{}
	for len(report.Gone) < len(d.Names) {
		for name, at := range began {
			if inTrash(d.Export.Share, name) == nil && report.Gone[name] == 0 {
				report.Gone[name] = time.Since(at)
			}
		}
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return report, err
		}
		report.PeakFDs = max(report.PeakFDs, len(fds))
		time.Sleep(20 * time.Millisecond)
	}
	status, err := os.ReadFile("/proc/self/status")
	report.Status = string(status)
	return report, errors.Join(err, done())
}

// peakMiB is the most that the process had in memory.
func (r deletionReport) peakMiB() (mib float64) {
	_, rest, _ := strings.Cut(r.Status, "VmHWM:")
	_, _ = fmt.Sscan(rest, &mib)
	return mib / 1024
}

func (d deletions) run(t *testing.T) (report deletionReport) {
	t.Helper()
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), deletionsVariable+"="+string(b))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &report)
	}
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// dig makes directories in one another, on the server's own disk.
func dig(t *testing.T, dir, name string, depth int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	for range depth {
		if err == nil {
			err = unix.Mkdirat(at, name, 0o755)
		}
		next := -1
		if err == nil {
			next, err = unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY, 0)
		}
		_ = unix.Close(at)
		at = next
	}
	_ = unix.Close(at)
	if err != nil {
		t.Fatal(err)
	}
}

// 3,000 directories in one another, with names of 200 bytes, took over a GiB of
// memory and minutes, and what was deleted after them waited for it.
func TestReclaimOfDeepTrees(t *testing.T) {
	for version, disk := range clientVersions() {
		t.Run(version, func(t *testing.T) {
			e, dir := export(t, disk, "rw,no_root_squash", 0o777)
			s := newStore(t)
			made(t, s, e, "deep", version, volume.OnDeleteDelete)
			made(t, s, e, "small", version, volume.OnDeleteDelete)
			dig(t, filepath.Join(dir, "deep"), strings.Repeat("n", 200), 3000)
			for i := range 10 {
				if err := os.WriteFile(filepath.Join(dir, "small", fmt.Sprint(i)), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got := deletions{Export: e, Version: version, Names: []string{"deep", "small"}, Mounts: filepath.Join(t.TempDir(), "mounts")}.run(t)
			t.Logf("gone after %v, with %.1f MiB and %d descriptors", got.Gone, got.peakMiB(), got.PeakFDs)
			if mib := got.peakMiB(); mib < 1 || mib > 64 {
				t.Errorf("it took %.1f MiB", mib)
			}
			if got.PeakFDs > 200 {
				t.Errorf("it had %d descriptors", got.PeakFDs)
			}
			if wait := got.Gone["small"]; wait > 5*time.Second {
				t.Errorf("ten files waited %s", wait)
			}
		})
	}
}
