package ociimage_test

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/nfs-csi/nfs-csi/hack/internal/ociimage"
)

// A registry that was given an archive serves the image of each platform.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	i := image(t)
	i.Names = []string{host + "/nfs-csi/app:v1"}
	archive := filepath.Join(t.TempDir(), "app.tar")
	summary, err := ociimage.WriteFile(archive, i)
	if err != nil {
		t.Fatal(err)
	}
	pushed, err := ociimage.Push(t.Context(), archive)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{host + "/nfs-csi/app@" + summary.Digest}, pushed); diff != "" {
		t.Errorf("pushed (-want +got):\n%s", diff)
	}
	ref, err := name.ParseReference(i.Names[0])
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	checkIndex(t, index, i, summary)
}

func TestPushFails(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.tar")
	if err := os.WriteFile(text, []byte("not a tar"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(nil)
	server.Close()
	i := image(t)
	i.Names = []string{strings.TrimPrefix(server.URL, "http://") + "/nfs-csi/app:v1"}
	gone := filepath.Join(dir, "gone.tar")
	if _, err := ociimage.WriteFile(gone, i); err != nil {
		t.Fatal(err)
	}
	for archive, want := range map[string]string{
		filepath.Join(dir, "missing.tar"): "no such file",
		text:                              "unpack " + text,
		gone:                              "push " + i.Names[0],
	} {
		if _, err := ociimage.Push(t.Context(), archive); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", filepath.Base(archive), err, want)
		}
	}
}
