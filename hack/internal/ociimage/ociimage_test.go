package ociimage_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/nfs-csi/nfs-csi/hack/internal/ociimage"
)

func source(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func spec(t *testing.T) ociimage.Spec {
	t.Helper()
	return ociimage.Spec{
		Names: []string{"ghcr.io/nfs-csi/app:v1", "docker.io/library/app:v1"},
		Entries: []ociimage.Entry{
			{Path: "/bin/app", Source: source(t, "content")},
			{Path: "/bin/alias", Link: "app"},
			{Path: "/tmp", Dir: true, Mode: fs.ModeSticky | 0o777},
		},
		Entrypoint:   []string{"/bin/app"},
		Cmd:          []string{"serve"},
		Env:          []string{"PATH=/bin"},
		User:         "65532:65532",
		Labels:       map[string]string{"k": "v"},
		Architecture: "amd64",
	}
}

// unpack extracts the archive and opens it with a third-party reader.
func unpack(t *testing.T, archive []byte) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	for name, content := range tarFiles(t, bytes.NewReader(archive)) {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func tarFiles(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for tr := tar.NewReader(r); ; {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = content
	}
}

func TestWrite(t *testing.T) {
	want := spec(t)
	var archive bytes.Buffer
	if err := ociimage.Write(&archive, want); err != nil {
		t.Fatal(err)
	}
	index := unpack(t, archive.Bytes())
	if err := validate.Index(index); err != nil {
		t.Errorf("not a valid image index: %v", err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range manifest.Manifests {
		names = append(names, m.Annotations["io.containerd.image.name"])
	}
	if diff := cmp.Diff(want.Names, names); diff != "" {
		t.Errorf("names differ (-want +got):\n%s", diff)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	wantConfig := v1.Config{
		Entrypoint: want.Entrypoint, Cmd: want.Cmd, Env: want.Env, User: want.User, Labels: want.Labels,
	}
	if diff := cmp.Diff(wantConfig, config.Config); diff != "" {
		t.Errorf("config differs (-want +got):\n%s", diff)
	}
	if config.OS != "linux" || config.Architecture != "amd64" {
		t.Errorf("platform = %s/%s, want linux/amd64", config.OS, config.Architecture)
	}
	checkLayer(t, img)
}

func checkLayer(t *testing.T, img v1.Image) {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("layers = %v, %v; want one", layers, err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	type file struct {
		Type    byte
		Mode    int64
		Link    string
		Content string
	}
	got := map[string]file{}
	for tr := tar.NewReader(content); ; {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || !header.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%s: owner %d:%d, time %v", header.Name, header.Uid, header.Gid, header.ModTime)
		}
		got[header.Name] = file{header.Typeflag, header.Mode, header.Linkname, string(data)}
	}
	want := map[string]file{
		"bin/":      {Type: tar.TypeDir, Mode: 0o755},
		"bin/app":   {Type: tar.TypeReg, Mode: 0o755, Content: "content"},
		"bin/alias": {Type: tar.TypeSymlink, Mode: 0o755, Link: "app"},
		"tmp/":      {Type: tar.TypeDir, Mode: 0o1777},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("layer differs (-want +got):\n%s", diff)
	}
}

func TestReproducible(t *testing.T) {
	s := spec(t)
	var first, second bytes.Buffer
	if err := ociimage.Write(&first, s); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(s.Entries[0].Source, later, later); err != nil {
		t.Fatal(err)
	}
	if err := ociimage.Write(&second, s); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same spec gave other bytes")
	}
}

func TestRefused(t *testing.T) {
	for name, change := range map[string]func(*ociimage.Spec){
		"no name":         func(s *ociimage.Spec) { s.Names = nil },
		"no architecture": func(s *ociimage.Spec) { s.Architecture = "" },
		"relative path":   func(s *ociimage.Spec) { s.Entries[0].Path = "bin/app" },
		"path upwards":    func(s *ociimage.Spec) { s.Entries[0].Path = "/../app" },
		"root":            func(s *ociimage.Spec) { s.Entries[0].Path = "/" },
		"twice":           func(s *ociimage.Spec) { s.Entries[1].Path = s.Entries[0].Path },
		"neither kind":    func(s *ociimage.Spec) { s.Entries[0].Source = "" },
		"file and link":   func(s *ociimage.Spec) { s.Entries[0].Link = "x" },
		"source is a dir": func(s *ociimage.Spec) { s.Entries[0].Source = os.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(t)
			change(&s)
			if err := ociimage.Write(io.Discard, s); !errors.Is(err, ociimage.ErrSpec) {
				t.Errorf("got %v, want ErrSpec", err)
			}
		})
	}
}

func TestWriteFileIsAtomic(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "sub", "image.tar")
	s := spec(t)
	if err := ociimage.WriteFile(file, s); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s.Entries[0].Source = filepath.Join(dir, "missing")
	if err := ociimage.WriteFile(file, s); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
	after, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Error("a failed write changed the file that was there")
	}
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(entries) != 1 {
		t.Errorf("entries = %v, %v; want only the image", entries, err)
	}
}

func TestLayoutVersion(t *testing.T) {
	var archive bytes.Buffer
	if err := ociimage.Write(&archive, spec(t)); err != nil {
		t.Fatal(err)
	}
	var marker struct{ ImageLayoutVersion string }
	if err := json.Unmarshal(tarFiles(t, &archive)["oci-layout"], &marker); err != nil || marker.ImageLayoutVersion != "1.0.0" {
		t.Errorf("oci-layout = %+v, %v", marker, err)
	}
}
