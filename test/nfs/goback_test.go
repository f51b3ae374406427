package nfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nfs-csi/nfs-csi/test/e2e/walkthrough"
)

// TestGoBack: csi-driver-nfs has deleted a volume of nfsplugin and left its record. The
// commands of docs/migrate.md find that record, and no other; without it, the directory's
// name is free again.
func TestGoBack(t *testing.T) {
	e, dir := export(t, "LAB_EXPORT_EXT4", "rw,no_root_squash", 0o755)
	s := takeover(t)
	create := func(name, subDir string) (id string, err error) {
		req := createReq(e, name)
		req.Parameters["subDir"] = subDir
		resp, err := s.CreateVolume(t.Context(), req)
		return resp.GetVolume().GetVolumeId(), err
	}
	kept, err1 := create("pvc-a52c1f0c-33d1-4c07-9d5b-0f6f3a1e2b74", "team/kept")
	_, err2 := create("pvc-1f0c8e66-5a0b-4f8e-b0d5-6f1c4f3f9a21", "team/data")
	if err := errors.Join(err1, err2, os.RemoveAll(filepath.Join(dir, "team/data"))); err != nil {
		t.Fatal(err)
	}
	const next = "pvc-9b7d2c40-61e5-4d3a-8c1f-7e5a3d9f0c12"
	if _, err := create(next, "team/data"); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "directory belongs to another volume") {
		t.Fatalf("with the record, its directory is %v", err)
	}

	work := t.TempDir()
	kubectl := fmt.Sprintf("#!/bin/sh\necho '%s'\n", kept)
	if err := os.WriteFile(filepath.Join(work, "kubectl"), []byte(kubectl), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", work+":"+os.Getenv("PATH"))
	page, err := os.ReadFile("../../docs/migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	steps, err := walkthrough.Parse(string(page)).Section("### Go back")
	if err != nil || len(steps) != 2 {
		t.Fatalf("the page has %d steps, %v; this test knows two", len(steps), err)
	}
	run := &walkthrough.Run{Dir: work, Transcript: io.Discard, Replace: []string{
		"nas.example.com", e.Server, "srv/nfs", strings.Trim(e.Share, "/"),
	}}
	found := ""
	for _, step := range steps {
		if found, err = run.Do(t.Context(), step); err != nil {
			t.Fatal(err)
		}
	}
	if !steps[1].Output.Shows(found) {
		t.Errorf("line %d: the page has\n%sit is\n%s", steps[1].Line, steps[1].Output.Text, found)
	}
	record, _, _ := strings.Cut(strings.ReplaceAll(found, "srv/nfs", strings.Trim(e.Share, "/")), ":")
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	if left, err := run.Do(t.Context(), steps[1]); left != "" || err == nil {
		t.Errorf("afterwards it prints %q, %v", left, err)
	}
	if _, err := create(next, "team/data"); err != nil {
		t.Errorf("without the record: %v", err)
	}
	if again, err := create("pvc-a52c1f0c-33d1-4c07-9d5b-0f6f3a1e2b74", "team/kept"); err != nil || again != kept {
		t.Errorf("the other volume is %s, %v", again, err)
	}
}
