package integration

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ofClass(name string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { claim.Spec.StorageClassName = &name }
}

func withModes(modes ...corev1.PersistentVolumeAccessMode) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { claim.Spec.AccessModes = modes }
}

func asBlock(claim *corev1.PersistentVolumeClaim) {
	claim.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
}

func withParameters(parameters map[string]string) func(*storagev1.StorageClass) {
	return func(class *storagev1.StorageClass) { maps.Copy(class.Parameters, parameters) }
}

// asked is the first request for the volume.
func (w *world) asked(volume string) *csi.CreateVolumeRequest {
	w.Helper()
	for _, request := range w.driver.Creates() {
		if request.GetName() == volume {
			return request
		}
	}
	w.Fatalf("the driver was not asked for %s", volume)
	return nil
}

func mounted(mode csi.VolumeCapability_AccessMode_Mode, fsType string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fsType, MountFlags: []string{"hard"}}},
	}
}

// What a claim and its class say comes to the driver and to the PersistentVolume.
func TestVolumesOfEachKind(t *testing.T) {
	w := newWorld(t)
	const old, own = "-old-key", "-own-key"
	w.createClass(w.name+own, withParameters(map[string]string{"csi.storage.k8s.io/fstype": "ext4"}))
	w.createClass(w.name+old, withParameters(map[string]string{"fsType": "ext3"}))
	w.start("--default-fstype=xfs", "--controller-publish-readonly")
	block := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
	const (
		oneNode    = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
		readers    = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
		everywhere = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	)
	inModes := func(modes ...csi.VolumeCapability_AccessMode_Mode) (list []*csi.VolumeCapability) {
		for _, mode := range modes {
			list = append(list, mounted(mode, "xfs"))
		}
		return list
	}
	for name, test := range map[string]struct {
		class    string
		change   func(*corev1.PersistentVolumeClaim)
		want     []*csi.VolumeCapability
		fsType   string
		readOnly bool
	}{
		"rwx":          {change: withModes(corev1.ReadWriteMany), want: inModes(everywhere), fsType: "xfs"},
		"rwx-rwo":      {change: withModes(corev1.ReadWriteMany, corev1.ReadWriteOnce), want: inModes(everywhere, oneNode), fsType: "xfs"},
		"rox-rwx":      {change: withModes(corev1.ReadOnlyMany, corev1.ReadWriteMany), want: inModes(readers, everywhere), fsType: "xfs"},
		"rwo":          {change: withModes(corev1.ReadWriteOnce), want: inModes(oneNode), fsType: "xfs"},
		"rwop":         {change: withModes(corev1.ReadWriteOncePod), want: inModes(oneNode), fsType: "xfs"},
		"rox":          {change: withModes(corev1.ReadOnlyMany), want: inModes(readers), fsType: "xfs", readOnly: true},
		"own-key":      {class: own, change: withModes(corev1.ReadWriteMany), want: []*csi.VolumeCapability{mounted(everywhere, "ext4")}, fsType: "ext4"},
		"old-key":      {class: old, change: withModes(corev1.ReadWriteMany), want: []*csi.VolumeCapability{mounted(everywhere, "ext3")}, fsType: "ext3"},
		"block":        {change: func(c *corev1.PersistentVolumeClaim) { withModes(corev1.ReadWriteOnce)(c); asBlock(c) }, want: []*csi.VolumeCapability{block}},
		"block-fstype": {class: own, change: func(c *corev1.PersistentVolumeClaim) { withModes(corev1.ReadWriteOnce)(c); asBlock(c) }, want: []*csi.VolumeCapability{block}},
	} {
		t.Run(name, func(t *testing.T) {
			w.createClaim(name, ofClass(w.name+test.class), test.change)
			volume := w.awaitBound(name)
			request := w.asked(volume.Name)
			same := func(a, b *csi.VolumeCapability) bool { return proto.Equal(a, b) }
			if got := request.GetVolumeCapabilities(); !slices.EqualFunc(got, test.want, same) {
				t.Errorf("the driver was asked for %v, want %v", got, test.want)
			}
			source := volume.Spec.CSI
			if source.FSType != test.fsType || source.ReadOnly != test.readOnly {
				t.Errorf("file system %q, read-only %t", source.FSType, source.ReadOnly)
			}
			if isBlock := *volume.Spec.VolumeMode == corev1.PersistentVolumeBlock; isBlock != strings.HasPrefix(name, "block") {
				t.Errorf("volume mode is %s", *volume.Spec.VolumeMode)
			}
			// The old key is read by some drivers themselves.
			for key := range request.GetParameters() {
				if key != "server" && (key != "fsType" || test.class != old) {
					t.Errorf("the driver got parameter %q", key)
				}
			}
		})
	}
}

func TestSingleNodeMultiWriter(t *testing.T) {
	w := newWorld(t)
	w.driver.SetCapabilities(
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	)
	w.start()
	for name, test := range map[string]struct {
		mode corev1.PersistentVolumeAccessMode
		want csi.VolumeCapability_AccessMode_Mode
	}{
		"rwo":  {corev1.ReadWriteOnce, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		"rwop": {corev1.ReadWriteOncePod, csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		"rwx":  {corev1.ReadWriteMany, csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	} {
		w.createClaim(name, withModes(test.mode))
		volume := w.awaitBound(name)
		if got := w.asked(volume.Name).GetVolumeCapabilities()[0]; !proto.Equal(got, mounted(test.want, "")) {
			t.Errorf("%s: the driver was asked for %v, want %s", name, got, test.want)
		}
	}
}

// sized answers with another size than was asked for.
func (w *world) sized(change func(asked int64) int64) {
	w.driver.OnCreate(func(_ context.Context, request *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		response, err := next()
		if err == nil {
			response.Volume.CapacityBytes = change(request.GetCapacityRange().GetRequiredBytes())
		}
		return response, err
	})
}

func TestSizeDiffersFromRequest(t *testing.T) {
	w := newWorld(t)
	w.start("--retry-interval-max=200ms")
	w.sized(func(asked int64) int64 { return asked / 2 })
	w.createClaim("less")
	w.awaitEvent("less", "ProvisioningFailed", "536870912 bytes, at least 1073741824 were requested; it was deleted")
	w.sized(func(int64) int64 { return 3 << 30 })
	if volume := w.awaitBound("less"); !volume.Spec.Capacity.Storage().Equal(resource.MustParse("3Gi")) {
		t.Errorf("capacity is %s", volume.Spec.Capacity.Storage())
	}
	w.sized(func(int64) int64 { return 0 })
	w.createClaim("unknown")
	if volume := w.awaitBound("unknown"); !volume.Spec.Capacity.Storage().Equal(resource.MustParse("1Gi")) {
		t.Errorf("capacity is %s", volume.Spec.Capacity.Storage())
	}
	w.settled()
	if len(w.driver.Deletes()) == 0 {
		t.Error("what was too small was not deleted")
	}
}

func TestSelectorIsRefused(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.createClaim("data", func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	})
	w.awaitEvent("data", "ProvisioningFailed", "it has a selector")
	if calls := w.driver.Creates(); len(calls) != 0 {
		t.Errorf("the driver was asked for %v", calls)
	}
}

// Names are the same in every process, and lead back to the claim.
func TestVolumeNames(t *testing.T) {
	w := newWorld(t)
	flags := []string{"--volume-name-prefix=vol.east", "--volume-name-uuid-length=12"}
	first := w.start(flags...)
	claim := w.createClaim("data")
	volume := w.awaitBound("data")
	if want := "vol.east-" + strings.ReplaceAll(string(claim.UID), "-", "")[:12]; volume.Name != want {
		t.Errorf("name is %s, want %s", volume.Name, want)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	w.start(flags...)
	w.createClaim("later")
	w.awaitBound("later")
	if calls := w.driver.Creates(); len(calls) != 2 {
		t.Errorf("the driver was asked %d times for two volumes", len(calls))
	}
	w.deleteClaim("data")
	w.awaitVolumeGone(volume.Name)
	if w.driver.Volumes()[volume.Name] != nil {
		t.Error("the volume was left behind")
	}
}
