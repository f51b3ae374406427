package nfs

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// canaries are a tree on the server's disk of which only a part is exported, with
// all that nobody may ever touch around and within the export.
type canaries struct {
	outer  string // above the export
	dir    string // the export on the server
	export volume.Export
	before map[string]string
}

func newCanaries(t *testing.T, e volume.Export, dir string) *canaries {
	t.Helper()
	c := &canaries{outer: filepath.Join(filepath.Dir(dir), "around-"+filepath.Base(dir)), dir: dir, export: e}
	mkdir(t, c.outer)
	t.Cleanup(func() {
		if err := os.RemoveAll(c.outer); err != nil {
			t.Error(err)
		}
	})
	c.plant(t, filepath.Join(c.outer, "above"))
	for _, d := range []string{"kept", "kept/sub", "legacy", "legacy/sub", "team", "team/data"} {
		mkdir(t, filepath.Join(dir, d))
	}
	for _, d := range []string{"kept", "kept/sub", "legacy/sub", "team/data"} {
		c.plant(t, filepath.Join(dir, d, "canary"))
	}
	rel, err := filepath.Rel(dir, filepath.Join(c.outer, "above"))
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"link-up": "..", "link-above": rel, "link-abs": filepath.Join(c.outer, "above"), "link-root": "/", "link-kept": "kept",
		"link-loop": "link-loop", "team/link-up": "../..", "team/link-kept": "../kept",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.WriteFile(file, []byte("of the export"), 0o640), unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return c
}

// plant makes a directory with one of everything.
func (c *canaries) plant(t *testing.T, dir string) {
	t.Helper()
	mkdir(t, dir)
	f := filepath.Join(dir, "secret")
	for _, err := range []error{
		os.WriteFile(f, []byte("not to be touched"), 0o400), os.Chown(f, 4321, 8765), os.Link(f, filepath.Join(dir, "hard")),
		os.Symlink("secret", filepath.Join(dir, "link")), os.Mkdir(filepath.Join(dir, "empty"), 0o700),
		unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600), os.Chmod(dir, 0o751), os.Chown(dir, 11, 12),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// remember is the state that check compares with.
func (c *canaries) remember(t *testing.T) {
	t.Helper()
	c.before = c.state(t)
}

// state describes every entry but what the driver keeps for itself. Of the
// export's own directory, in which volumes come and go, the times do not count.
func (c *canaries) state(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, top := range []string{c.outer, c.dir} {
		err := filepath.WalkDir(top, func(p string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if p == filepath.Join(c.dir, ".nfs-csi") {
				return filepath.SkipDir
			}
			var st syscall.Stat_t
			if err := syscall.Lstat(p, &st); err != nil {
				return err
			}
			text := fmt.Sprintf("mode %o, owner %d:%d, %d links", st.Mode, st.Uid, st.Gid, st.Nlink)
			switch st.Mode & syscall.S_IFMT {
			case syscall.S_IFREG:
				b, err := os.ReadFile(p)
				if err != nil {
					return err
				}
				text += fmt.Sprintf(", changed %v, content %d %x", st.Mtim, len(b), crc32.ChecksumIEEE(b))
			case syscall.S_IFLNK:
				to, err := os.Readlink(p)
				text += ", to " + to
				if err != nil {
					return err
				}
			case syscall.S_IFDIR:
				if p == c.dir {
					text = fmt.Sprintf("mode %o, owner %d:%d", st.Mode, st.Uid, st.Gid)
				} else {
					text += fmt.Sprintf(", changed %v", st.Mtim)
				}
			}
			all[p] = text
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// check compares all canaries with what they were.
func (c *canaries) check(t *testing.T) {
	t.Helper()
	after := c.state(t)
	for p, was := range c.before {
		if is, ok := after[p]; !ok {
			t.Errorf("%s is gone, it was: %s", p, was)
		} else if is != was {
			t.Errorf("%s is now: %s; it was: %s", p, is, was)
		}
		delete(after, p)
	}
	for p, is := range after {
		t.Errorf("%s is new: %s", p, is)
	}
}

// corpus of hostile texts. What is a fine name of a new directory is in it too.
func corpus() []string {
	return []string{
		"", ".", "..", "/", "//", "./", "../", "../above", "../../etc", "/etc", "/export", "a/../..", "a/../../above", "./kept", "kept/..",
		"kept/", "kept//sub", "//kept", "kept/sub", "kept/canary", "link-up", "link-up/above", "link-above", "link-abs/secret", "link-root/etc",
		"link-kept", "link-kept/sub", "link-loop", "team/link-up", "team/link-kept/sub", "file", "file/x", "fifo", "kept/canary/secret",
		".nfs-csi", ".nfs-csi/volumes", ".NFS-CSI", ".nfs-csi/trash", ".record.json", "a/.record.json", `..\above`, `kept\sub`, `\`, "nul\x00", "\x00",
		"kept\x00", "new\nline", "tab\t", "\x7f", "\xff\xfe", "a\xc0\xafb", "..\u2215above", "\u202e", "e\u0301", "ü", "日本語", "🚀", "#", "##", "a#b",
		"kept#kept", "#kept#", "..#..", strings.Repeat("n", 4000), strings.Repeat("n", 256), strings.Repeat("n", 255), strings.Repeat("ä", 128),
		strings.Repeat("a/", 600) + "a", "${pv.metadata.name}", "${", "${}", "${pvc.metadata.name}/..", "%2e%2e", "%2f", "~", "~root", "-rf", "*", " ",
		"$(touch x)", "a b", "a,b", "rw,addr=192.0.2.1", "true", "0", "-1", "07777", "99999999999999999999", "0x10", "delete", "lost+found",
	}
}

// worst are those of the corpus that could lead somewhere on a server.
func worst() []string {
	return []string{
		"../above", "kept/sub", "link-up/above", "link-abs/secret", "link-kept/sub", "link-loop", "file", "nul\x00", "kept#kept", strings.Repeat("n", 255),
	}
}
