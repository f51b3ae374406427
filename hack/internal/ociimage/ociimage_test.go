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

func image(t *testing.T) ociimage.Image {
	t.Helper()
	return ociimage.Image{
		Names:     []string{"ghcr.io/nfs-csi/app:v1", "docker.io/library/app:v1"},
		Platforms: []ociimage.Spec{spec(t, "amd64"), spec(t, "arm64")},
	}
}

func spec(t *testing.T, architecture string) ociimage.Spec {
	t.Helper()
	return ociimage.Spec{
		Entries: []ociimage.Entry{
			{Path: "/bin/app", Source: source(t, "content for "+architecture)},
			{Path: "/bin/alias", Link: "app"},
			{Path: "/tmp", Dir: true, Mode: fs.ModeSticky | 0o777},
		},
		Entrypoint:   []string{"/bin/app"},
		Cmd:          []string{"serve"},
		Env:          []string{"PATH=/bin"},
		User:         "65532:65532",
		Labels:       map[string]string{"k": "v"},
		Architecture: architecture,
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

// Each name refers to one image index, which lists the image of each platform.
func TestWrite(t *testing.T) {
	want := image(t)
	var archive bytes.Buffer
	summary, err := ociimage.Write(&archive, want)
	if err != nil {
		t.Fatal(err)
	}
	names := unpack(t, archive.Bytes())
	if err := validate.Index(names); err != nil {
		t.Errorf("not a valid image index: %v", err)
	}
	manifest, err := names.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range manifest.Manifests {
		got = append(got, m.Annotations["io.containerd.image.name"])
		if m.Digest.String() != summary.Digest || !m.MediaType.IsIndex() {
			t.Errorf("a name refers to %s %s, want the image index %s", m.MediaType, m.Digest, summary.Digest)
		}
	}
	if diff := cmp.Diff(want.Names, got); diff != "" {
		t.Errorf("names differ (-want +got):\n%s", diff)
	}
	index, err := names.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	checkIndex(t, index, want, summary)
}

func checkIndex(t *testing.T, index v1.ImageIndex, want ociimage.Image, summary ociimage.Summary) {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 2 || len(summary.Platforms) != 2 {
		t.Fatalf("%d platforms, %d in the summary; want 2", len(manifest.Manifests), len(summary.Platforms))
	}
	for i, m := range manifest.Manifests {
		wanted := want.Platforms[i]
		platform := "linux/" + wanted.Architecture
		if m.Platform.String() != platform || summary.Platforms[i].Name != platform {
			t.Errorf("platform %s, %s in the summary; want %s", m.Platform, summary.Platforms[i].Name, platform)
		}
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, img, wanted)
		if size := blobs(t, img); summary.Platforms[i].Size != size {
			t.Errorf("size %d, want %d", summary.Platforms[i].Size, size)
		}
	}
}

// blobs adds up what a node downloads.
func blobs(t *testing.T, img v1.Image) int64 {
	t.Helper()
	manifest, err := img.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	size := int64(len(manifest) + len(config))
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		n, err := layer.Size()
		if err != nil {
			t.Fatal(err)
		}
		size += n
	}
	return size
}

func checkImage(t *testing.T, img v1.Image, want ociimage.Spec) {
	t.Helper()
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
	if config.OS != "linux" || config.Architecture != want.Architecture {
		t.Errorf("platform = %s/%s, want linux/%s", config.OS, config.Architecture, want.Architecture)
	}
	checkLayer(t, img, "content for "+want.Architecture)
}

func checkLayer(t *testing.T, img v1.Image, app string) {
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
		"bin/app":   {Type: tar.TypeReg, Mode: 0o755, Content: app},
		"bin/alias": {Type: tar.TypeSymlink, Mode: 0o755, Link: "app"},
		"tmp/":      {Type: tar.TypeDir, Mode: 0o1777},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("layer differs (-want +got):\n%s", diff)
	}
}

func write(t *testing.T, image ociimage.Image) []byte {
	t.Helper()
	var archive bytes.Buffer
	if _, err := ociimage.Write(&archive, image); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

func TestReproducible(t *testing.T) {
	i := image(t)
	first := write(t, i)
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(i.Platforms[0].Entries[0].Source, later, later); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, write(t, i)) {
		t.Error("the same files gave other bytes")
	}
}

// A layer that both platforms have is in the archive once.
func TestSharedLayer(t *testing.T) {
	i := image(t)
	i.Platforms[1].Entries = i.Platforms[0].Entries
	seen := map[string]bool{}
	for tr := tar.NewReader(bytes.NewReader(write(t, i))); ; {
		header, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if seen[header.Name] {
			t.Errorf("%s is there twice", header.Name)
		}
		seen[header.Name] = true
	}
	// The index, and manifest and configuration of each platform, and the layer.
	if blobs := len(seen) - len([]string{"oci-layout", "index.json"}); blobs != 6 {
		t.Errorf("%d blobs, want 6", blobs)
	}
}

func TestRefused(t *testing.T) {
	for name, change := range map[string]func(*ociimage.Image, *ociimage.Spec){
		"no name":            func(i *ociimage.Image, _ *ociimage.Spec) { i.Names = nil },
		"no platform":        func(i *ociimage.Image, _ *ociimage.Spec) { i.Platforms = nil },
		"architecture twice": func(_ *ociimage.Image, s *ociimage.Spec) { s.Architecture = "amd64" },
		"no architecture":    func(_ *ociimage.Image, s *ociimage.Spec) { s.Architecture = "" },
		"relative path":      func(_ *ociimage.Image, s *ociimage.Spec) { s.Entries[0].Path = "bin/app" },
		"path upwards":       func(_ *ociimage.Image, s *ociimage.Spec) { s.Entries[0].Path = "/../app" },
		"root":               func(_ *ociimage.Image, s *ociimage.Spec) { s.Entries[0].Path = "/" },
		"path twice":         func(_ *ociimage.Image, s *ociimage.Spec) { s.Entries[1].Path = s.Entries[0].Path },
		"neither kind":       func(_ *ociimage.Image, s *ociimage.Spec) { s.Entries[0].Source = "" },
		"file and link":      func(_ *ociimage.Image, s *ociimage.Spec) { s.Entries[0].Link = "x" },
		"source is a dir":    func(_ *ociimage.Image, s *ociimage.Spec) { s.Entries[0].Source = os.TempDir() },
	} {
		t.Run(name, func(t *testing.T) {
			i := image(t)
			change(&i, &i.Platforms[1])
			if _, err := ociimage.Write(io.Discard, i); !errors.Is(err, ociimage.ErrSpec) {
				t.Errorf("got %v, want ErrSpec", err)
			}
		})
	}
}

func TestWriteFileIsAtomic(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "sub", "image.tar")
	i := image(t)
	if _, err := ociimage.WriteFile(file, i); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	i.Platforms[0].Entries[0].Source = filepath.Join(dir, "missing")
	if _, err := ociimage.WriteFile(file, i); !errors.Is(err, fs.ErrNotExist) {
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
	var marker struct{ ImageLayoutVersion string }
	content := tarFiles(t, bytes.NewReader(write(t, image(t))))["oci-layout"]
	if err := json.Unmarshal(content, &marker); err != nil || marker.ImageLayoutVersion != "1.0.0" {
		t.Errorf("oci-layout = %+v, %v", marker, err)
	}
}
