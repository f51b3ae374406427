package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nfs-csi/nfs-csi/test/lab/internal/job"
)

// keptDisks spares the tests mkfs.
func keptDisks(t *testing.T, scratch string) {
	t.Helper()
	for _, name := range []string{"ext4", "xfs", "node"} {
		if err := os.WriteFile(filepath.Join(scratch, name+".img"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKernelArgs(t *testing.T) {
	scratch := t.TempDir()
	keptDisks(t, scratch)
	args, err := Options{Memory: "1G", Cluster: &job.Cluster{}}.kernelArgs(scratch, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"ro", "mem=1G", "ubda=" + scratch + "/ext4.img", "ubdb=" + scratch + "/xfs.img", "ubdc=" + scratch + "/node.img", "ssl0=null,fd:3",
	} {
		if !slices.Contains(args, want) {
			t.Errorf("no %q in %q", want, args)
		}
	}
	if tail := args[len(args)-3:]; !slices.Equal(tail, []string{"--", GuestCommand, scratch}) {
		t.Errorf("init is told %q", tail)
	}
}

func TestKernelArgsRefusesBlanks(t *testing.T) {
	scratch := filepath.Join(t.TempDir(), "a b")
	if err := os.Mkdir(scratch, 0o755); err != nil {
		t.Fatal(err)
	}
	keptDisks(t, scratch)
	if _, err := (Options{Memory: "1G"}).kernelArgs(scratch, false); err == nil || !strings.Contains(err.Error(), "a b") {
		t.Errorf("got %v, want an error that names the path", err)
	}
}

func TestDiskIsKept(t *testing.T) {
	scratch := t.TempDir()
	path := filepath.Join(scratch, "d.img")
	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (disk{"d", "1M", []string{"false"}}).make(scratch); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(path); string(data) != "data" {
		t.Error("a kept disk was made anew")
	}
}

func TestDiskErrorNamesTheCommand(t *testing.T) {
	_, err := (disk{"d", "1M", []string{"false"}}).make(t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "false") {
		t.Errorf("got %v", err)
	}
}

func TestImageArchives(t *testing.T) {
	dir := t.TempDir()
	if _, err := ImageArchives(dir); err == nil || !strings.Contains(err.Error(), "make") {
		t.Errorf("an empty directory: got %v, want what makes the archives", err)
	}
	archive := filepath.Join(dir, "a.tar")
	if err := os.WriteFile(archive, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if found, err := ImageArchives(dir); err != nil || !slices.Equal(found, []string{archive}) {
		t.Errorf("got %q, %v", found, err)
	}
}

func TestKubeCacheKey(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "main.go")
	keys := map[string]bool{}
	for _, content := range []string{"a", "b"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		key, err := hashFiles(dir, "main.go")
		if err != nil {
			t.Fatal(err)
		}
		keys[key] = true
	}
	if len(keys) != 2 {
		t.Error("another source has the same key")
	}
}

func TestKubernetesVersionIsThatOfTheModule(t *testing.T) {
	source, err := findUp(kubeSource)
	if err != nil {
		t.Fatal(err)
	}
	version, err := kubernetesVersion(source)
	if err != nil || !strings.HasPrefix(version, "v1.") {
		t.Errorf("got %q, %v", version, err)
	}
}
