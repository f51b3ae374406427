package tree

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childVariable makes this program do only what it says, so that its memory can be
// measured.
const childVariable = "TREE_TEST_CHILD"

type childOrder struct {
	What                  string
	From, To, Scratch     string
	Err                   string
	Entries               int64
	IdleMiB, PeakMiB      float64
	Descriptors, Unlinked int64
}

func TestMain(m *testing.M) {
	if os.Getenv(removalVariable) != "" {
		if err := removeInChild(); err != nil {
			panic(err)
		}
		return
	}
	if text := os.Getenv(childVariable); text != "" {
		var o childOrder
		err := json.Unmarshal([]byte(text), &o)
		if err == nil {
			err = o.do()
		}
		if err != nil {
			o.Err = err.Error()
		}
		if err := json.NewEncoder(os.Stdout).Encode(o); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// run does it in a child process.
func (o childOrder) run(t *testing.T) childOrder {
	t.Helper()
	began := time.Now()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), childVariable+"="+string(b))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &o)
	}
	if err != nil || o.Err != "" {
		t.Fatalf("%s: %v, %s", o.What, err, o.Err)
	}
	t.Logf("%s: %s, %d entries, idle %.1f MiB, peak %.1f MiB, %d descriptors", o.What, time.Since(began), o.Entries, o.IdleMiB, o.PeakMiB, o.Descriptors)
	return o
}

func (o *childOrder) do() (err error) {
	o.IdleMiB, err = peakRSS()
	if err != nil {
		return err
	}
	from, err := os.OpenRoot(o.From)
	if err != nil {
		return err
	}
	defer from.Close()
	switch o.What {
	case "copy":
		err = o.copy(from)
	case "count":
		_, o.Entries, err = Count(context.Background(), from)
	case "changed":
		var changed string
		if changed, err = ChangedSince(context.Background(), from, time.Now().Add(time.Hour), 4); changed != "" {
			err = fmt.Errorf("changed is %s", changed)
		}
	}
	if err == nil {
		o.PeakMiB, err = peakRSS()
	}
	return err
}

func (o *childOrder) copy(from *os.Root) error {
	to, err := os.OpenRoot(o.To)
	if err != nil {
		return err
	}
	defer to.Close()
	p := &Progress{}
	var n, most atomic.Int64
	err = Copy(context.Background(), from, to, CopyOptions{
		Workers: 4, Progress: p,
		Scratch: func() (*os.Root, error) { return os.OpenRoot(o.Scratch) },
		Pause: func(context.Context) error {
			if n.Add(1)%101 != 0 {
				return nil
			}
			list, err := os.ReadDir("/proc/self/fd")
			most.Store(max(most.Load(), int64(len(list))))
			return err
		},
	})
	o.Entries, o.Descriptors, o.Unlinked = p.Entries(), most.Load(), p.Unlinked()
	return err
}

func peakRSS() (mib float64, err error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	kB, err := strconv.Atoi(strings.Fields(rest)[0])
	return float64(kB) / 1024, err
}

// nest creates nested directories, every hundredth with a file.
func nest(t *testing.T, dir, name string, depth int) (entries int64) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	for i := 0; i < depth && err == nil; i++ {
		entries++
		if i%100 == 0 {
			err = unix.Mknodat(at, "file", unix.S_IFREG|0o600, 0)
			entries++
		}
		next := -1
		if err = errors.Join(err, unix.Mkdirat(at, name, 0o755)); err == nil {
			next, err = unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		}
		err = errors.Join(err, unix.Close(at))
		at = next
	}
	if err = errors.Join(err, unix.Close(at)); err != nil {
		t.Fatal(err)
	}
	return entries
}

const boundMiB = 64

func TestDepthNeedsNoMore(t *testing.T) {
	const depth = 50000
	from, to, scratch := memory(t, "1g"), memory(t, "1g"), mkdir(t, filepath.Join(t.TempDir(), "s"))
	entries := nest(t, from.Name(), strings.Repeat("n", 200), depth)
	for _, order := range []childOrder{
		{What: "copy", From: from.Name(), To: to.Name(), Scratch: scratch},
		{What: "count", From: to.Name()},
		{What: "changed", From: from.Name()},
	} {
		got := order.run(t)
		if got.PeakMiB-got.IdleMiB > boundMiB || got.Descriptors > 100 || got.What != "changed" && got.Entries != entries {
			t.Errorf("%s: %+v, want %d entries", got.What, got, entries)
		}
	}
}

// Files in one directory, each with another link outside of the tree.
func TestWidthNeedsNoMore(t *testing.T) {
	const files = 40000
	from, to := memory(t, "1g"), memory(t, "1g")
	scratch := mkdir(t, filepath.Join(filepath.Dir(to.Name()), "scratch"))
	for _, dir := range []string{"wide", "outside"} {
		mkdir(t, filepath.Join(from.Name(), dir))
	}
	for i := range files {
		name := fmt.Sprintf("wide/%0200d", i)
		if err := errors.Join(from.WriteFile(name, nil, 0o600), from.Link(name, fmt.Sprint("outside/", i))); err != nil {
			t.Fatal(err)
		}
	}
	got := childOrder{What: "copy", From: filepath.Join(from.Name(), "wide"), To: to.Name(), Scratch: scratch}.run(t)
	if got.PeakMiB-got.IdleMiB > boundMiB/2 || got.Descriptors > 100 || got.Entries != files {
		t.Errorf("%+v", got)
	}
}
