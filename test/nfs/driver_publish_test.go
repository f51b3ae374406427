package nfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/nfs-csi/nfs-csi/pkg/driver"
)

func TestPublishOptions(t *testing.T) {
	s := plugin(t)
	for name, tt := range map[string]struct {
		change func(*csi.NodePublishVolumeRequest)
		want   []string
	}{
		"none": {func(*csi.NodePublishVolumeRequest) {}, []string{"rw", "vers=4.2"}},
		"fsType": {func(r *csi.NodePublishVolumeRequest) {
			r.VolumeCapability.GetMount().FsType = "nfs4"
		}, []string{"vers=4.2"}},
		"attributes": {func(r *csi.NodePublishVolumeRequest) {
			r.VolumeContext["mountOptions"] = "nconnect=2,timeo=77,sec=sys"
		}, []string{"nconnect=2", "timeo=77", "sec=sys"}},
		"PV wins": {func(r *csi.NodePublishVolumeRequest) {
			r.VolumeContext["mountOptions"] = "vers=4.1,timeo=77,soft,noatime"
			r.VolumeCapability = capability(writers, "timeo=66", "vers=4.0", "hard", "relatime")
		}, []string{"timeo=66", "vers=4.0", "hard", "relatime"}},
		"version 3": {func(r *csi.NodePublishVolumeRequest) {
			r.VolumeCapability = capability(writers, "nfsvers=3")
		}, []string{"vers=3"}},
		"read-only": {func(r *csi.NodePublishVolumeRequest) {
			r.Readonly = true
			r.VolumeCapability = capability(writers, "rw")
		}, []string{"ro"}},
	} {
		t.Run(name, func(t *testing.T) {
			export := exports(t)["ext4"]
			req := publishReq(t, export, serverDir(t, export))
			tt.change(req)
			s.publish(t, req)
			s.publish(t, req) // the same again
			info := mountAt(t, req.GetTargetPath())
			all := strings.Split(info.Options+","+info.VFSOptions, ",")
			for _, want := range tt.want {
				if !slices.Contains(all, want) {
					t.Errorf("%s is missing in %s", want, all)
				}
			}
			err := os.WriteFile(filepath.Join(req.GetTargetPath(), "f"), nil, 0o644)
			if ro := slices.Contains(tt.want, "ro"); errors.Is(err, syscall.EROFS) != ro || err != nil && !ro {
				t.Errorf("write: %v", err)
			}
		})
	}
}

// What this kernel or server cannot do is an error that says so, and leaves nothing.
func TestPublishSecurityOptions(t *testing.T) {
	s := plugin(t)
	export := exports(t)["ext4"]
	sub := serverDir(t, export)
	s.publish(t, publishReq(t, export, sub, "sec=sys"))
	for option, want := range map[string]struct {
		code codes.Code
		says string
	}{
		"sec=krb5":     {codes.PermissionDenied, "check the export's list of clients and its sec= option"},
		"sec=krb5p":    {codes.PermissionDenied, "check the export's list of clients and its sec= option"},
		"xprtsec=tls":  {codes.InvalidArgument, "NFS mount options not accepted"},
		"xprtsec=mtls": {codes.InvalidArgument, "NFS mount options not accepted"},
		"proto=rdma":   {codes.InvalidArgument, "NFS mount options not accepted"},
	} {
		req := publishReq(t, export, sub, option)
		_, err := s.NodePublishVolume(t.Context(), req)
		t.Log(option)
		mustFail(t, err, want.code, want.says)
		if err == nil {
			s.unpublish(t, req)
		}
		if e := mountAt(t, req.GetTargetPath()); e != nil {
			t.Errorf("%s left %+v", option, e)
		}
	}
}

func TestPublishIPv6(t *testing.T) {
	s := plugin(t)
	export := exports(t)["xfs"]
	sub := serverDir(t, export)
	for _, server := range []string{"::1", "[::1]"} {
		export.Server = server
		s.publish(t, publishReq(t, export, sub))
	}
}

// Of a name with addresses of both kinds the one is taken that proto= is of: the kernel
// refuses the other.
func TestPublishPicksTheFamilyOfProto(t *testing.T) {
	s := plugin(t)
	export := exports(t)["xfs"]
	sub := serverDir(t, export)
	export.Server = "dual.test"
	hosts(t, "127.0.0.1 dual.test\n::1 dual.test\n")
	for option, want := range map[string]string{
		// A client of version 4 finds out that both are one server, and stays with the
		// address that it knows.
		"vers=4.2,proto=tcp": "", "vers=4.2,proto=tcp6": "",
		"vers=3,proto=tcp": "127.0.0.1", "vers=3,proto=tcp6": "::1",
	} {
		req := publishReq(t, export, sub, option)
		s.publish(t, req)
		if got := mountAt(t, req.GetTargetPath()).VFSOptions; want != "" && !strings.Contains(got+",", ",addr="+want+",") {
			t.Errorf("%s: mounted with %s, want addr=%s", option, got, want)
		}
	}
}

// hosts puts another /etc/hosts in place until the test ends.
func hosts(t *testing.T, content string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(file, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount("/etc/hosts", 0); err != nil {
			t.Error(err)
		}
	})
}

// A pod's end does not touch the mount of the pod that replaced it, in whatever
// order the calls come.
func TestReplacementKeepsItsMount(t *testing.T) {
	s := plugin(t)
	export := exports(t)["ext4"]
	sub := serverDir(t, export)
	old, replacement := publishReq(t, export, sub), publishReq(t, export, sub)
	s.publish(t, old)
	s.publish(t, replacement)
	s.unpublish(t, old)
	s.unpublish(t, old)
	if err := os.WriteFile(filepath.Join(replacement.GetTargetPath(), "f"), nil, 0o644); err != nil {
		t.Error(err)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { s.unpublish(t, old) })
		wg.Go(func() {
			if _, err := s.NodePublishVolume(t.Context(), replacement); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if mountAt(t, replacement.GetTargetPath()) == nil {
		t.Error("the replacement has lost its mount")
	}
}

func TestSingleWriter(t *testing.T) {
	s := plugin(t)
	export := exports(t)["xfs"]
	sub := serverDir(t, export)
	first, second := publishReq(t, export, sub), publishReq(t, export, sub)
	for _, r := range []*csi.NodePublishVolumeRequest{first, second} {
		r.VolumeCapability = capability(csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER)
	}
	s.publish(t, first)
	s.publish(t, first)
	_, err := s.NodePublishVolume(t.Context(), second)
	mustFail(t, err, codes.FailedPrecondition, first.GetTargetPath())
	s.unpublish(t, first)
	s.publish(t, second)
}

// The author of a pod may write to an allowed share and plant symlinks there; a
// mount of one must not lead to what is not allowed.
func TestInlineVolumesOutsideTheAllowlist(t *testing.T) {
	export := exports(t)["ext4"]
	other := exports(t)["xfs"]
	sub := serverDir(t, export)
	dir := filepath.Join(export.Share, sub)
	s := plugin(t, func(c *driver.Config) {
		c.Ephemeral = &driver.Ephemeral{Servers: []string{export.Server + ":" + dir}, MountOptions: []string{"vers"}}
	})
	secret := filepath.Join(export.Share, serverDir(t, export))
	mkdir(t, filepath.Join(dir, "real"))
	for link, to := range map[string]string{
		"absolute": secret, "relative": "../" + filepath.Base(secret), "export": other.Share, "root": "/", "dir": "..",
	} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	inline := func(path, version string) *csi.NodePublishVolumeRequest {
		req := publishReq(t, export, sub+"/"+path)
		req.VolumeContext["csi.storage.k8s.io/ephemeral"] = "true"
		if version != "" {
			req.VolumeContext["mountOptions"] = version
		}
		return req
	}
	for _, version := range []string{"", "vers=4.2", "vers=4.0"} {
		s.publish(t, inline("real", version))
		for _, path := range []string{
			"absolute", "relative", "export", "root", "dir", "dir/" + filepath.Base(secret), "root" + secret, "real/../" + sub, "real/../../" + filepath.Base(secret),
		} {
			req := inline(path, version)
			_, err := s.NodePublishVolume(t.Context(), req)
			if err == nil {
				t.Errorf("%s %s: published: %+v", version, path, mountAt(t, req.GetTargetPath()))
				s.unpublish(t, req)
				continue
			}
			t.Logf("%s %s: %v", version, path, err)
			if e := mountAt(t, req.GetTargetPath()); e != nil {
				t.Errorf("%s %s left %+v", version, path, e)
			}
		}
	}
	_, err := s.NodePublishVolume(t.Context(), inline("real", "vers=3"))
	mustFail(t, err, codes.InvalidArgument, "version 3")
}

// A symlink in the place of a volume's directory must not lead a pod to another
// volume; one that an administrator made for the share is followed.
func TestVolumeBehindASymlinkIsRefused(t *testing.T) {
	s := plugin(t)
	for name, export := range exports(t) {
		victim, holder := serverDir(t, export), serverDir(t, export)
		dir := filepath.Join(export.Share, holder)
		mkdir(t, filepath.Join(dir, "real"))
		for link, to := range map[string]string{"planted": "../" + victim, "up": "..", "share": "."} {
			if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
				t.Fatal(err)
			}
		}
		for _, sub := range []string{holder + "/planted", holder + "/up/" + victim + "/../" + holder + "/planted", holder + "/planted/."} {
			req := publishReq(t, export, sub)
			if _, err := s.NodePublishVolume(t.Context(), req); err == nil {
				t.Errorf("%s: %s was published: %+v", name, sub, mountAt(t, req.GetTargetPath()))
			}
			if m := mountAt(t, req.GetTargetPath()); m != nil {
				t.Errorf("%s: %s left %+v", name, sub, m)
			}
		}
		_, err := s.NodePublishVolume(t.Context(), publishReq(t, export, holder+"/planted"))
		mustFail(t, err, codes.PermissionDenied, "leads elsewhere")

		linked := export
		linked.Share += "/" + holder + "/share"
		req := publishReq(t, linked, "real")
		s.publish(t, req)
		s.publish(t, req) // the same again
	}
}
