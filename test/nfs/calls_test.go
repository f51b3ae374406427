package nfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

func (c call) id(name string) volume.ID {
	subDir := "team/" + name
	policy := volume.OnDeleteDelete
	if c.What == "archive" {
		policy = volume.OnDeleteArchive
	}
	return volume.ID{Export: c.Export, SubDir: subDir, Name: name, OnDelete: policy}
}

func (c call) create(ctx context.Context, s *store.Store, name string, src *store.Source) error {
	req := store.CreateRequest{
		Name: name, MountOptions: []string{c.Version, "nosharecache"}, Source: src,
		Params: volume.Params{Export: c.Export, SubDir: c.id(name).SubDir, OnDelete: c.id(name).OnDelete, Mode: 0o2770},
	}
	req.Params.UID, req.Params.GID = ids(77, 78)
	if c.What == "reuse" { // whatever the volume, its claim is the same
		req.Params.SubDir, req.Params.Reuse = "team/${pvc.metadata.name}", true
		req.Params.Metadata = map[string]string{volume.KeyPVCNamespace: "team", volume.KeyPVCName: "source"}
	}
	_, err := s.Create(ctx, req)
	return err
}

func (c call) snapshotID() volume.SnapshotID {
	return volume.SnapshotID{Export: c.Export, Name: "snap", Source: "source"}
}

// prepare makes what the call needs.
func (c call) prepare(ctx context.Context, s *store.Store) error {
	var err error
	if c.What == "delete below" { // of a predecessor
		err = os.MkdirAll(filepath.Join(c.Export.Share, "team/source"), 0o755)
	} else {
		err = c.create(ctx, s, "source", nil)
	}
	for i := range 5 {
		err = errors.Join(err, os.WriteFile(filepath.Join(c.Export.Share, "team/source", fmt.Sprint("f", i)), []byte("data"), 0o644))
	}
	if err == nil && (c.What == "restore" || c.What == "delete snapshot") {
		_, err = s.CreateSnapshot(ctx, store.SnapshotRequest{Name: "snap", Source: c.id("source")})
	}
	if err == nil && strings.HasSuffix(c.What, "group") {
		err = c.create(ctx, s, "second", nil)
	}
	if err == nil && c.What == "delete group" {
		_, err = s.CreateGroup(ctx, c.group())
	}
	return err
}

func (c call) group() store.GroupRequest {
	return groupReq("group", store.Created{ID: c.id("second")}, store.Created{ID: c.id("source")})
}

func (c call) do(ctx context.Context, s *store.Store) error {
	source, snapshot := c.id("source"), c.snapshotID()
	switch c.What {
	case "create", "reuse":
		return c.create(ctx, s, "new", nil)
	case "delete", "archive":
		return s.Delete(ctx, source, nil)
	case "delete below":
		return s.Delete(ctx, above(source), nil)
	case "snapshot":
		_, err := s.CreateSnapshot(ctx, store.SnapshotRequest{Name: "snap", Source: source})
		return err
	case "delete snapshot":
		return s.DeleteSnapshot(ctx, snapshot, nil)
	case "group":
		_, err := s.CreateGroup(ctx, c.group())
		return err
	case "delete group":
		return s.DeleteGroup(ctx, volume.GroupID{Export: c.Export, Name: "group"}, nil, nil)
	case "clone":
		return c.create(ctx, s, "new", &store.Source{Volume: &source})
	}
	return c.create(ctx, s, "new", &store.Source{Snapshot: &snapshot})
}

// after is what is then on the server.
func (c call) after() []string {
	volumeOf := func(name string, files bool) []string {
		list := []string{"team", ".nfs-csi/volumes/team", ".nfs-csi/names/" + name}
		list = append(list, live("team/"+name)...)
		if files {
			list = append(list, inside("team/"+name)...)
		}
		return list
	}
	source := volumeOf("source", true)
	snapshot := append([]string{".nfs-csi/snapshots/snap", ".nfs-csi/snapshots/snap/record.json", ".nfs-csi/snapshots/snap/data"}, inside(".nfs-csi/snapshots/snap/data")...)
	switch c.What {
	case "create":
		return append(source, volumeOf("new", false)...)
	case "reuse":
		list := append(live("team/source"), inside("team/source")...)
		return append(list, "team", ".nfs-csi/volumes/team", ".nfs-csi/names/new", ".nfs-csi/"+catalog.ReusePath("team/source"))
	case "delete", "delete below":
		return nil
	case "archive":
		return append([]string{"team", "team/archived-source"}, inside("team/archived-source")...)
	case "snapshot":
		return append(source, snapshot...)
	case "delete snapshot":
		return source
	case "group":
		list := slices.Concat(source, volumeOf("second", false))
		list = append(list, ".nfs-csi/groups/group", ".nfs-csi/groups/group/record.json")
		for _, member := range []string{"1", "2"} {
			at := ".nfs-csi/groups/group/" + member
			list = append(list, at, at+"/record.json", at+"/data")
		}
		return append(list, inside(".nfs-csi/groups/group/2/data")...)
	case "delete group":
		return append(source, volumeOf("second", false)...)
	case "clone":
		return append(source, volumeOf("new", true)...)
	}
	return append(append(source, volumeOf("new", true)...), snapshot...)
}

func inside(dir string) (files []string) {
	for i := range 5 {
		files = append(files, dir+fmt.Sprint("/f", i))
	}
	return files
}
