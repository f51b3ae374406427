package nfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/status"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/nfs-csi/nfs-csi/pkg/driver"
	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

const (
	recording = "testdata/csi-driver-nfs-v4.13.4.txt"
	// Where it was recorded.
	recordedServer, recordedShare = "127.0.0.1", "/export/ext4"

	claimSize = 1 << 30
)

// The calls that csi-driver-nfs was recorded with, in its place: answers and directories
// differ in what docs/migrate.md lists, and in nothing else.
func TestCallsOfCSIDriverNFS(t *testing.T) {
	e, dir := export(t, "LAB_EXPORT_EXT4", "rw,no_root_squash", 0o755)
	r := &replay{
		T: t, services: takeover(t), export: e, dir: dir, targets: t.TempDir(),
		volumes: map[string]*csi.Volume{}, snapshots: map[string]string{},
	}
	var found []difference
	for _, s := range readRecording(t, recording) {
		here := r.do(s)
		for i, line := range here {
			here[i] = r.asRecorded(line)
		}
		found = append(found, compare(s.call(), s.outcome, here)...)
	}
	for _, complaint := range complaints(found, readAllowances(t, "../../docs/migrate.md", "### Differences of the calls")) {
		t.Error(complaint)
	}
}

// takeover is the driver configured by deploy/kubernetes/csi-driver-nfs.
func takeover(t *testing.T) *services {
	t.Helper()
	set := pflag.NewFlagSet("nfsplugin", pflag.ContinueOnError)
	name := set.String("driver-name", "", "")
	mode := set.String("directory-mode", "", "")
	permissions := set.String("mount-permissions", "", "")
	policy := set.String("default-ondelete-policy", "", "")
	for _, wiring := range []string{"mode", "endpoint", "working-mount-dir", "http-endpoint"} {
		set.String(wiring, "", "")
	}
	set.IntP("v", "v", 0, "")
	if err := set.Parse(controllerArgs(t, "../../deploy/kubernetes/csi-driver-nfs/nfs-csi.yaml")); err != nil {
		t.Fatalf("a flag of the overlay that this test does not know: %v", err)
	}
	if *permissions != "0" || *policy != "delete" {
		t.Fatalf("--mount-permissions=%s, --default-ondelete-policy=%s: not the defaults, which this test has", *permissions, *policy)
	}
	parsed, err := volume.ParseMode(*mode)
	if err != nil || *name == "" {
		t.Fatalf("driver name %q, mode %q, %v", *name, *mode, err)
	}
	return pluginWith(t, kernel(t), store.Config{Mode: parsed}, func(c *driver.Config) { c.Name = *name })
}

// controllerArgs are the flags of nfsplugin in the controller of a rendered kustomization.
func controllerArgs(t *testing.T, file string) []string {
	t.Helper()
	rendered, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(rendered), 4096)
	for {
		var d appsv1.Deployment
		err := decoder.Decode(&d)
		if errors.Is(err, io.EOF) {
			t.Fatalf("%s has no Deployment", file)
		}
		if err != nil {
			t.Fatal(err)
		}
		if d.Kind == "Deployment" {
			return d.Spec.Template.Spec.Containers[0].Args
		}
	}
}

// replay makes recorded calls. Volumes and snapshots are those that it made, by name.
type replay struct {
	*testing.T
	*services
	export    volume.Export
	dir       string // of the export on the server
	targets   string
	volumes   map[string]*csi.Volume
	snapshots map[string]string
}

// asRecorded writes a text as if the export were that of the recording.
func (r *replay) asRecorded(text string) string {
	return strings.NewReplacer(r.export.Server, recordedServer, strings.Trim(r.export.Share, "/"), strings.Trim(recordedShare, "/")).Replace(text)
}

// here is the reverse of asRecorded.
func (r *replay) here(text string) string {
	return strings.NewReplacer(recordedServer, r.export.Server, strings.Trim(recordedShare, "/"), strings.Trim(r.export.Share, "/")).Replace(text)
}

// do makes a step and returns its outcome.
func (r *replay) do(s step) []string {
	r.Helper()
	switch s.verb {
	case "create":
		return r.createVolume(s)
	case "delete":
		_, err := r.DeleteVolume(r.Context(), &csi.DeleteVolumeRequest{VolumeId: r.idOf(s.name)})
		return r.answer(err)
	case "snapshot":
		return r.snapshot(s)
	case "delete-snapshot":
		_, err := r.DeleteSnapshot(r.Context(), &csi.DeleteSnapshotRequest{SnapshotId: r.snapshots[s.name]})
		return r.answer(err)
	case "publish":
		return r.publishVolume(s)
	case "unpublish":
		return r.unpublishVolume(s.name)
	case "umount":
		r.unpublishVolume(s.name)
	case "stats":
		_, err := r.NodeGetVolumeStats(r.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: r.idOf(s.name), VolumePath: r.target(s.name)})
		return r.answer(err)
	case "fill":
		r.fill(filepath.Join(r.dir, s.name))
	case "write":
		if err := os.WriteFile(filepath.Join(r.dir, s.name), []byte("new\n"), 0o644); err != nil {
			r.Fatal(err)
		}
	case "tree":
		return r.tree(s.args)
	default:
		r.Fatalf("unknown step %q", s.verb)
	}
	return nil
}

func (r *replay) answer(err error, more ...string) []string {
	if err != nil {
		r.Logf("%v", err)
		return []string{"error " + status.Code(err).String()}
	}
	return append([]string{"ok"}, more...)
}

// idOf is the ID of a volume; if it was refused here, the one that csi-driver-nfs gave it.
func (r *replay) idOf(name string) string {
	if v := r.volumes[name]; v != nil {
		return v.GetVolumeId()
	}
	for _, s := range readRecording(r.T, recording) {
		if id, ok := facts(s.outcome)["id"]; ok && s.call() == "create "+name {
			return r.here(strings.TrimPrefix(id, "id "))
		}
	}
	r.Fatalf("no volume %s", name)
	return ""
}

func (r *replay) createVolume(s step) []string {
	r.Helper()
	req := createReq(r.export, s.name)
	req.CapacityRange = &csi.CapacityRange{RequiredBytes: claimSize}
	req.Parameters["onDelete"] = "delete"
	for _, arg := range s.args {
		key, value, _ := strings.Cut(arg, "=")
		switch {
		case strings.HasPrefix(arg, "-"):
			delete(req.Parameters, key[1:])
		case key == "size":
			size, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				r.Fatal(err)
			}
			req.CapacityRange.RequiredBytes = size
		case key == "from":
			req.VolumeContentSource = r.source(value)
		default:
			req.Parameters[key] = r.here(value)
		}
	}
	resp, err := r.CreateVolume(r.Context(), req)
	if err != nil {
		return r.answer(err)
	}
	v := resp.GetVolume()
	r.volumes[s.name] = v
	if req.GetVolumeContentSource() != nil { // more was not recorded of a copy
		return r.answer(nil)
	}
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(v.GetVolumeContext())) {
		pairs = append(pairs, key+"="+v.GetVolumeContext()[key])
	}
	return r.answer(nil, "id "+v.GetVolumeId(), fmt.Sprintf("capacity %d", v.GetCapacityBytes()), "context "+strings.Join(pairs, " "))
}

func (r *replay) source(name string) *csi.VolumeContentSource {
	if id, ok := r.snapshots[name]; ok {
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}}}
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: r.idOf(name)}}}
}

func (r *replay) snapshot(s step) []string {
	source := strings.TrimPrefix(s.args[0], "of=")
	resp, err := r.CreateSnapshot(r.Context(), &csi.CreateSnapshotRequest{Name: s.name, SourceVolumeId: r.idOf(source)})
	made := resp.GetSnapshot()
	if err == nil {
		r.snapshots[s.name] = made.GetSnapshotId()
	}
	return r.answer(err, "id "+made.GetSnapshotId(), fmt.Sprintf("size %d", made.GetSizeBytes()), fmt.Sprintf("ready %v", made.GetReadyToUse()))
}

func (r *replay) target(name string) string { return filepath.Join(r.targets, name, "mount") }

func (r *replay) publishVolume(s step) []string {
	r.Helper()
	req := &csi.NodePublishVolumeRequest{
		VolumeId: s.name, TargetPath: r.target(s.name), VolumeCapability: capability(writers, s.args...),
		VolumeContext: map[string]string{"server": r.export.Server, "share": r.export.Share, "subdir": s.name},
	}
	if v := r.volumes[s.name]; v != nil {
		req.VolumeId, req.VolumeContext = v.GetVolumeId(), v.GetVolumeContext()
	}
	if _, err := r.NodePublishVolume(r.Context(), req); err != nil {
		return r.answer(err)
	}
	info := mountAt(r.T, req.GetTargetPath())
	if info == nil {
		return r.answer(nil, "mount nothing -")
	}
	var options []string
	for option := range strings.SplitSeq(info.Options+","+info.VFSOptions, ",") {
		name, _, _ := strings.Cut(option, "=")
		if !slices.Contains([]string{"addr", "clientaddr", "mountaddr", "mountport"}, name) {
			options = append(options, option)
		}
	}
	return r.answer(nil, "mount "+info.FSType+" "+strings.Join(options, ","))
}

func (r *replay) unpublishVolume(name string) []string {
	_, err := r.NodeUnpublishVolume(r.Context(), &csi.NodeUnpublishVolumeRequest{VolumeId: r.idOf(name), TargetPath: r.target(name)})
	left := "gone"
	if _, err := os.Lstat(r.target(name)); !errors.Is(err, fs.ErrNotExist) {
		left = "left"
	}
	return r.answer(err, "target "+left)
}

func (r *replay) fill(dir string) {
	r.Helper()
	file := filepath.Join(dir, "f")
	if err := errors.Join(
		os.WriteFile(file, []byte("hello\n"), 0o640), os.Chown(file, 1000, 1000),
		os.Mkdir(filepath.Join(dir, "d"), 0o755), os.Symlink("f", filepath.Join(dir, "l")),
	); err != nil {
		r.Fatal(err)
	}
}

// tree lists what is on the export, except for the content of .nfs-csi.
func (r *replay) tree(prefixes []string) (lines []string) {
	r.Helper()
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == r.dir {
			return err
		}
		name := strings.TrimPrefix(path, r.dir+"/")
		if len(prefixes) > 0 && !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		_, uid, gid := owner(r.T, path)
		size := ""
		if !d.IsDir() {
			size = fmt.Sprintf(" %d", info.Size())
		}
		lines = append(lines, fmt.Sprintf("%s %d:%d%s %s", strings.ToLower(info.Mode().String()), uid, gid, size, name))
		if name == volume.MetaDir {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	return lines
}
