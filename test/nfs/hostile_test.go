package nfs

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nfs-csi/nfs-csi/pkg/driver"
	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// hostile puts every text of the corpus into everything that a caller writes.
type hostile struct {
	*services
	*canaries
	t       *testing.T
	version string
	alive   *csi.Volume // a live volume, which must stay
	taken   *csi.Snapshot
	// shown is the directory on the server that is published at a target.
	shown func(target string) string
	// quick says that a mount costs nothing.
	quick bool
	calls int
}

// On a local directory: all of it.
func TestHostileTextsWithoutNFS(t *testing.T) {
	unix.Umask(0)
	if os.Getuid() != 0 || os.Getenv("LAB") != "" {
		t.Skip("needs root, for the owners of canaries, and takes long in the lab")
	}
	fake, dir := nfsmounttest.NewFake(), filepath.Join(t.TempDir(), "export")
	mkdir(t, dir)
	e := volume.Export{Server: "nfs.test", Share: dir}
	fake.AddExport(e, dir)
	c := newCanaries(t, e, dir)
	h := &hostile{services: pluginOn(t, fake, c.allow), canaries: c, t: t, version: "vers=4.2", quick: true, shown: func(target string) string {
		to, err := os.Readlink(target)
		if err != nil {
			t.Error(err)
		}
		return to
	}}
	h.run(corpus())
}

// Over NFS: what means something to a server or a mount.
func TestHostileTexts(t *testing.T) {
	for version, disk := range clientVersions() {
		t.Run(version, func(t *testing.T) {
			e, dir := export(t, disk, "rw,no_root_squash", 0o777)
			c := newCanaries(t, e, dir)
			h := &hostile{services: plugin(t, c.allow), canaries: c, t: t, version: version, shown: func(target string) string {
				_, path, _ := strings.Cut(mountAt(t, target).Source, ":")
				return path
			}}
			texts := worst()
			if version == "vers=3" { // what differs is how a path is walked
				texts = []string{"../above", "link-kept/sub", "file"}
			}
			h.run(texts)
		})
	}
}

func (c *canaries) allow(cfg *driver.Config) {
	cfg.Ephemeral = &driver.Ephemeral{Servers: []string{c.export.Server + ":" + c.export.Share + "/kept"}}
}

func (h *hostile) run(texts []string) {
	h.t.Helper()
	h.prepare()
	h.remember(h.t)
	for _, text := range texts {
		h.volumes(text)
		h.ids(text)
		h.snapshots(text)
		h.groups(text)
		h.inline(text)
	}
	eventually(h.t, time.Minute, "the trash is reclaimed", h.reclaimed)
	h.check(h.t)
	h.whole()
	h.t.Logf("%d calls", h.calls)
}

func (h *hostile) prepare() {
	h.t.Helper()
	resp, err := h.CreateVolume(h.t.Context(), createReq(h.export, "alive", h.version))
	if err != nil {
		h.t.Fatal(err)
	}
	h.alive = resp.GetVolume()
	h.plant(h.t, filepath.Join(h.dir, "alive/canary"))
	snap, err := h.CreateSnapshot(h.t.Context(), &csi.CreateSnapshotRequest{Name: "taken", SourceVolumeId: h.alive.GetVolumeId()})
	if err != nil {
		h.t.Fatal(err)
	}
	h.taken = snap.GetSnapshot()
}

// whole looks whether what was there before can be used after.
func (h *hostile) whole() {
	h.t.Helper()
	if _, err := h.ControllerGetVolume(h.t.Context(), &csi.ControllerGetVolumeRequest{VolumeId: h.alive.GetVolumeId()}); err != nil {
		h.t.Error(err)
	}
	req := createReq(h.export, "restored", h.version)
	req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: h.taken.GetSnapshotId()},
	}}
	resp, err := h.CreateVolume(h.t.Context(), req)
	if err != nil {
		h.t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(h.dir, "restored/canary/secret")); err != nil || string(b) != "not to be touched" {
		h.t.Errorf("restored %q, %v", b, err)
	}
	h.remove(resp.GetVolume().GetVolumeId())
}

func (h *hostile) reclaimed() error {
	left, err := os.ReadDir(filepath.Join(h.dir, ".nfs-csi/trash"))
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d are left", len(left))
	}
	return err
}

// done counts a call, which must answer in its time and know what was wrong.
func (h *hostile) done(began time.Time, what string, err error) {
	h.t.Helper()
	h.calls++
	if took := time.Since(began); took > 5*time.Second {
		h.t.Errorf("%.200s took %s", what, took)
	}
	switch status.Code(err) {
	case codes.Unknown, codes.Internal, codes.DeadlineExceeded:
		h.t.Errorf("%.200s: %.500v", what, err)
	}
}

func (h *hostile) remove(id string) {
	h.t.Helper()
	if _, err := h.DeleteVolume(context.WithoutCancel(h.t.Context()), &csi.DeleteVolumeRequest{VolumeId: id}); err != nil {
		h.t.Errorf("delete of what was made: %v", err)
	}
}

// create makes a volume, in a directory of its own or not at all, and deletes it.
func (h *hostile) create(what string, req *csi.CreateVolumeRequest) {
	h.t.Helper()
	began := time.Now()
	resp, err := h.CreateVolume(h.t.Context(), req)
	h.done(began, what, err)
	if err != nil {
		return
	}
	id, err := volume.ParseID(resp.GetVolume().GetVolumeId())
	if err != nil {
		h.t.Fatalf("%.200s: %v", what, err)
	}
	if _, was := h.before[filepath.Join(h.dir, id.SubDir)]; was {
		// Adopted, and not to go again.
		_, err := h.ControllerModifyVolume(h.t.Context(), &csi.ControllerModifyVolumeRequest{
			VolumeId: id.String(), MutableParameters: map[string]string{"onDelete": "retain"},
		})
		if err != nil {
			h.t.Fatal(err)
		}
	}
	h.remove(id.String())
}

func (h *hostile) params(change map[string]string) map[string]string {
	all := map[string]string{"server": h.export.Server, "share": h.export.Share, "onDelete": "delete"}
	maps.Copy(all, change)
	return all
}

// volumes puts the text into a CreateVolumeRequest.
func (h *hostile) volumes(text string) {
	h.create("name "+text, createReq(h.export, text, h.version))
	metadata := map[string]string{volume.KeyPVCName: text, volume.KeyPVCNamespace: text, volume.KeyPVName: text}
	for _, change := range []map[string]string{
		{"subDir": text}, {"pathPattern": text}, {"subDir": "/" + text + "/"}, {"subDir": "new/" + text}, {"subDir": text + "/new"},
		{"subDir": "${pvc.metadata.name}"}, {"subDir": "${.PVC.namespace}/${.PVC.name}"}, {"subDir": "x-${pv.metadata.name}-y"},
		{"onDelete": text}, {"archiveOnDelete": text}, {"mountPermissions": text}, {"mode": text}, {"uid": text}, {"gid": text}, {text: text},
	} {
		req := createReq(h.export, "pvc-hostile", h.version)
		if info, err := os.Stat(filepath.Join(h.dir, text)); change["subDir"] == text+"/new" && err == nil && info.IsDir() {
			continue // a class may put volumes into what is there
		}
		req.Parameters = h.params(metadata)
		maps.Copy(req.Parameters, change)
		h.create(fmt.Sprintf("parameters %q", change), req)
	}
	req := createReq(h.export, "pvc-hostile", text)
	if !strings.Contains(text, "=") { // mount options, of which one is for a server that is not there
		h.create("mount options "+text, req)
	}
	h.shares(text, func(server, share string) {
		req := createReq(h.export, "pvc-hostile", h.version)
		req.Parameters = h.params(map[string]string{"server": server, "share": share})
		h.create(fmt.Sprintf("export %q %q", server, share), req)
		began := time.Now()
		_, err := h.GetCapacity(h.t.Context(), &csi.GetCapacityRequest{Parameters: req.GetParameters()})
		h.done(began, "capacity of "+text, err)
	})
}

// shares calls do for exports that name no directory but that the text leads to
// one. Which directory a class names as its share, and with which symlinks, is
// the administrator's; a server may have any name.
func (h *hostile) shares(text string, do func(server, share string)) {
	if _, err := volume.ParseExport(text, "/x"); err != nil {
		do(text, h.export.Share)
	}
	for _, share := range []string{text, h.export.Share + "/" + text, h.export.Share + text} {
		if e, err := volume.ParseExport(h.export.Server, share); err != nil {
			do(h.export.Server, share)
		} else if _, err := os.Stat(e.Share); err != nil && h.quick {
			do(h.export.Server, share)
		}
	}
}

// idsWith are volume IDs with the text in each of their parts.
func (h *hostile) idsWith(text string) []string {
	server, share := h.export.Server, strings.Trim(h.export.Share, "/")
	ids := []string{
		text, text + "#" + text + "#" + text,
		strings.Join([]string{server, share, text}, "#"), strings.Join([]string{server, share, text, "", "delete"}, "#"),
		strings.Join([]string{server, share, text, "pvc-hostile", "archive"}, "#"), strings.Join([]string{server, share, text + "/x"}, "#"),
		strings.Join([]string{server, share, "alive", "other" + text, "delete"}, "#"), strings.Join([]string{server, share, "none", "none", text}, "#"),
		strings.Join([]string{server, share, text}, "/"), server + "#" + share + "#" + text + "#" + text + "#" + text + "#" + text,
	}
	h.shares(text, func(server, share string) {
		ids = append(ids, strings.Join([]string{server, share, "none", "", "delete"}, "#"))
	})
	return slices.DeleteFunc(ids, func(id string) bool { // what is a volume of a predecessor may be deleted
		parsed, err := volume.ParseID(id)
		if err != nil {
			return false
		}
		if _, err := os.Stat(parsed.Export.Share); err == nil && parsed.Export != h.export {
			return true // another share, as for shares
		}
		info, err := os.Lstat(filepath.Join(parsed.Export.Share, parsed.SubDir))
		return err == nil && info.IsDir() && parsed.SubDir != "alive"
	})
}

// ids puts the text into volume IDs of every call that takes one.
func (h *hostile) ids(text string) {
	ctx := h.t.Context()
	for _, id := range h.idsWith(text) {
		call := func(what string, err error, began time.Time) { h.done(began, fmt.Sprintf("%s %.300q", what, id), err) }
		began := time.Now()
		_, err := h.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
		call("delete", err, began)
		_, err = h.ControllerGetVolume(ctx, &csi.ControllerGetVolumeRequest{VolumeId: id})
		call("get", err, began)
		began = time.Now()
		_, err = h.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 1}})
		call("expand", err, began)
		_, err = h.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: map[string]string{"mountPermissions": "0700", "onDelete": "delete"}})
		call("modify", err, began)
		began = time.Now()
		_, err = h.ControllerGetVolumeHealth(ctx, &csi.ControllerGetVolumeHealthRequest{VolumeId: id})
		call("health", err, began)
		_, err = h.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "hostile", SourceVolumeId: id})
		call("snapshot", err, began)
		if err == nil {
			h.t.Errorf("took a snapshot of %.300q", id)
		}
		req := createReq(h.export, "pvc-hostile", h.version)
		req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: id}}}
		h.create("clone of "+id, req)
	}
}

// snapshots puts the text into names, IDs and parameters of snapshots.
func (h *hostile) snapshots(text string) {
	ctx, server, share := h.t.Context(), h.export.Server, strings.Trim(h.export.Share, "/")
	reqs := []*csi.CreateSnapshotRequest{
		{Name: text}, {Name: "hostile", Parameters: map[string]string{"mountOptions": "vers=4.2," + text}},
		{Name: "hostile", Parameters: map[string]string{text: text}}, {Name: "hostile", Secrets: map[string]string{"mountOptions": text}},
	}
	h.shares(text, func(server, share string) {
		reqs = append(reqs, &csi.CreateSnapshotRequest{Name: "hostile", Parameters: map[string]string{"server": server, "share": share}})
	})
	for _, req := range reqs {
		if strings.Contains(text, "=") {
			continue
		}
		req.SourceVolumeId = h.alive.GetVolumeId()
		began := time.Now()
		made, err := h.CreateSnapshot(ctx, req)
		h.done(began, fmt.Sprintf("snapshot %.300v", req), err)
		if err == nil {
			_, err = h.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: made.GetSnapshot().GetSnapshotId()})
			h.done(began, "delete snapshot "+text, err)
		}
	}
	ids := []string{
		text, strings.Join([]string{server, share, text, text, "alive"}, "#"), strings.Join([]string{server, share, "taken", text, "alive"}, "#"),
		strings.Join([]string{server, share, "taken", "taken", "x" + text}, "#"), strings.Join([]string{server, share, "kept", "kept", text}, "#"),
		strings.Join([]string{server, share, text, "1", "alive", "group"}, "#"), strings.Join([]string{server, share, "group", text, "alive", "group"}, "#"),
	}
	h.shares(text, func(server, share string) {
		ids = append(ids, strings.Join([]string{server, share, "none", "none", "alive"}, "#"))
	})
	for _, id := range ids {
		began := time.Now()
		_, err := h.DeleteSnapshot(ctx, &csi.DeleteSnapshotRequest{SnapshotId: id})
		h.done(began, fmt.Sprintf("delete snapshot %.300q", id), err)
		_, err = h.GetSnapshot(ctx, &csi.GetSnapshotRequest{SnapshotId: id})
		h.done(began, fmt.Sprintf("get snapshot %.300q", id), err)
		req := createReq(h.export, "pvc-hostile", h.version)
		req.VolumeContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: id}}}
		h.create("restore of "+id, req)
	}
}

// groups puts the text into names, IDs and parameters of group snapshots.
func (h *hostile) groups(text string) {
	ctx, server, share := h.t.Context(), h.export.Server, strings.Trim(h.export.Share, "/")
	alive := h.alive.GetVolumeId()
	for _, req := range []*csi.CreateVolumeGroupSnapshotRequest{
		{Name: text, SourceVolumeIds: []string{alive}}, {Name: "hostile", SourceVolumeIds: []string{alive, text}},
		{Name: "hostile", SourceVolumeIds: []string{strings.Join([]string{server, share, text}, "#")}},
		{Name: "hostile", SourceVolumeIds: []string{alive}, Parameters: map[string]string{text: text}},
		{Name: "hostile", SourceVolumeIds: []string{alive}, Parameters: map[string]string{"server": server, "share": text}},
	} {
		if info, err := os.Lstat(filepath.Join(h.dir, text)); err == nil && info.IsDir() && len(req.GetSourceVolumeIds()) == 1 && req.GetSourceVolumeIds()[0] != alive {
			continue // a volume of a predecessor
		}
		began := time.Now()
		made, err := h.CreateVolumeGroupSnapshot(ctx, req)
		h.done(began, fmt.Sprintf("group snapshot %.300v", req), err)
		if err == nil {
			_, err = h.DeleteVolumeGroupSnapshot(ctx, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: made.GetGroupSnapshot().GetGroupSnapshotId()})
			h.done(began, "delete group snapshot "+text, err)
		}
	}
	for _, id := range []string{text, strings.Join([]string{server, share, text, "group"}, "#"), strings.Join([]string{server, share, "group", text}, "#")} {
		began := time.Now()
		_, err := h.DeleteVolumeGroupSnapshot(ctx, &csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: id, SnapshotIds: []string{text}})
		h.done(began, fmt.Sprintf("delete group snapshot %.300q", id), err)
		_, err = h.GetVolumeGroupSnapshot(ctx, &csi.GetVolumeGroupSnapshotRequest{GroupSnapshotId: id})
		h.done(began, fmt.Sprintf("get group snapshot %.300q", id), err)
	}
}

// inline publishes what the author of a pod writes. Only what lies in kept is
// allowed, and only that may show.
func (h *hostile) inline(text string) {
	for _, attributes := range []map[string]string{
		{"share": h.export.Share + "/kept", "subDir": text}, {"share": h.export.Share + "/kept/" + text}, {"share": h.export.Share, "subDir": "kept/" + text},
		{"share": h.export.Share + "/kept" + text}, {"share": h.export.Share, "subDir": text}, {"share": text}, {"server": text, "share": h.export.Share + "/kept"},
		{"share": h.export.Share + "/kept", "mountOptions": text}, {"share": h.export.Share + "/kept", text: text},
	} {
		req := publishReq(h.t, h.export, "")
		delete(req.GetVolumeContext(), "subDir")
		maps.Copy(req.GetVolumeContext(), attributes)
		req.VolumeContext["csi.storage.k8s.io/ephemeral"] = "true"
		began := time.Now()
		_, err := h.NodePublishVolume(h.t.Context(), req)
		h.done(began, fmt.Sprintf("publish %.300q", attributes), err)
		if err != nil {
			continue
		}
		if shown := h.shown(req.GetTargetPath()); !strings.HasPrefix(shown+"/", h.export.Share+"/kept/") {
			h.t.Errorf("%.300q shows %s", attributes, shown)
		}
		h.unpublish(h.t, req)
	}
}
