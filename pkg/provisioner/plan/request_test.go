package plan

import (
	"errors"
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

const gib = 1 << 30

func testOptions() Options {
	return Options{Driver: Capabilities{DriverName: "nfs.example"}, Identity: "17-nfs.example"}
}

func testClaim(change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "data", UID: "1"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		},
	}
	for _, apply := range change {
		apply(claim)
	}
	return claim
}

func testClass(parameters map[string]string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta:   metav1.ObjectMeta{Name: "fast"},
		Provisioner:  "nfs.example",
		Parameters:   parameters,
		MountOptions: []string{"nfsvers=4.2", "hard"},
	}
}

func block(claim *corev1.PersistentVolumeClaim) {
	claim.Spec.VolumeMode = new(corev1.PersistentVolumeBlock)
}

func modes(modes ...corev1.PersistentVolumeAccessMode) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { claim.Spec.AccessModes = modes }
}

func TestRequest(t *testing.T) {
	options := testOptions()
	options.ExtraCreateMetadata = true
	class := testClass(map[string]string{
		"server":                    "a",
		"csi.storage.k8s.io/fstype": "nfs4",
		"csi.storage.k8s.io/provisioner-secret-name":      "${pvc.name}",
		"csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
	})
	creation, err := NewCreation(options, testClaim(), class, "pvc-1")
	if err != nil {
		t.Fatal(err)
	}
	want := &csi.CreateVolumeRequest{
		Name:          "pvc-1",
		CapacityRange: &csi.CapacityRange{RequiredBytes: gib},
		Parameters: map[string]string{
			"server":                           "a",
			"csi.storage.k8s.io/pvc/name":      "data",
			"csi.storage.k8s.io/pvc/namespace": "team-a",
			"csi.storage.k8s.io/pv/name":       "pvc-1",
		},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
				FsType: "nfs4", MountFlags: []string{"nfsvers=4.2", "hard"},
			}},
		}},
	}
	if !proto.Equal(creation.Request, want) {
		t.Errorf("got  %v\nwant %v", creation.Request, want)
	}
	if secret := (SecretRef{Namespace: "team-a", Name: "data"}); creation.Secret != secret {
		t.Errorf("secret is %v, want %v", creation.Secret, secret)
	}
	if len(class.Parameters) != 4 {
		t.Errorf("the class was modified: %v", class.Parameters)
	}
}

func TestAccessModes(t *testing.T) {
	const (
		rwo  = corev1.ReadWriteOnce
		rox  = corev1.ReadOnlyMany
		rwx  = corev1.ReadWriteMany
		rwop = corev1.ReadWriteOncePod
	)
	const (
		writer       = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
		singleWriter = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
		multiWriter  = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
		readers      = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
		writers      = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	)
	type claimModes []corev1.PersistentVolumeAccessMode
	type csiModes []csi.VolumeCapability_AccessMode_Mode
	tests := []struct {
		modes       claimModes
		multiWriter bool
		want        csiModes // nil is ErrClaim
	}{
		{claimModes{rwo}, false, csiModes{writer}},
		{claimModes{rwo}, true, csiModes{multiWriter}},
		{claimModes{rwop}, false, csiModes{writer}},
		{claimModes{rwop}, true, csiModes{singleWriter}},
		{claimModes{rox}, true, csiModes{readers}},
		{claimModes{rwo, rox, rwx}, true, csiModes{multiWriter, readers, writers}},
		{claimModes{rwx, rwo}, false, csiModes{writers, writer}},
		{claimModes{rwo, rox}, false, csiModes{writer, readers}},
		{claimModes{rwop, rwx}, true, nil},
		{claimModes{"ReadWriteSometimes"}, true, nil},
		{nil, true, nil},
	}
	for _, test := range tests {
		options := testOptions()
		options.Driver.SingleNodeMultiWriter = test.multiWriter
		creation, err := NewCreation(options, testClaim(modes(test.modes...)), testClass(nil), "pvc-1")
		if test.want == nil {
			if !errors.Is(err, ErrClaim) {
				t.Errorf("%v: got %v, want ErrClaim", test.modes, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%v: %v", test.modes, err)
			continue
		}
		var got csiModes
		for _, capability := range creation.Request.VolumeCapabilities {
			got = append(got, capability.AccessMode.Mode)
			if !slices.Equal(capability.GetMount().GetMountFlags(), testClass(nil).MountOptions) {
				t.Errorf("%v: mount flags of %s are %v", test.modes, capability.AccessMode.Mode, capability.GetMount().GetMountFlags())
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%v, multi-writer driver %t: got %v, want %v", test.modes, test.multiWriter, got, test.want)
		}
	}
}

func TestFSType(t *testing.T) {
	named := map[string]string{"csi.storage.k8s.io/fstype": "xfs"}
	tests := map[string]struct {
		parameters map[string]string
		fallback   string
		claim      *corev1.PersistentVolumeClaim
		want       string
	}{
		"none":          {nil, "", testClaim(), ""},
		"default":       {nil, "ext4", testClaim(), "ext4"},
		"class wins":    {named, "ext4", testClaim(), "xfs"},
		"none on block": {named, "ext4", testClaim(block), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			options := testOptions()
			options.DefaultFSType = test.fallback
			creation, err := NewCreation(options, test.claim, testClass(test.parameters), "pvc-1")
			if err != nil {
				t.Fatal(err)
			}
			if got := creation.Request.VolumeCapabilities[0].GetMount().GetFsType(); got != test.want {
				t.Errorf("requested %q, want %q", got, test.want)
			}
			pv, err := creation.Volume(&csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "id"}})
			if err != nil {
				t.Fatal(err)
			}
			if pv.Spec.CSI.FSType != test.want {
				t.Errorf("volume has %q, want %q", pv.Spec.CSI.FSType, test.want)
			}
		})
	}
}

func TestBlockRequest(t *testing.T) {
	creation, err := NewCreation(testOptions(), testClaim(block), testClass(nil), "pvc-1")
	if err != nil {
		t.Fatal(err)
	}
	if capability := creation.Request.VolumeCapabilities[0]; capability.GetBlock() == nil || capability.GetMount() != nil {
		t.Errorf("capability of a block claim is %v", capability)
	}
}

func TestClaimsRefused(t *testing.T) {
	tests := map[string]struct {
		change func(*corev1.PersistentVolumeClaim)
		says   string
	}{
		"selector": {func(claim *corev1.PersistentVolumeClaim) {
			claim.Spec.Selector = &metav1.LabelSelector{}
		}, "selector"},
		"no size": {func(claim *corev1.PersistentVolumeClaim) {
			claim.Spec.Resources.Requests = nil
		}, "no storage"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := NewCreation(testOptions(), testClaim(test.change), testClass(nil), "pvc-1")
			if !errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("NewCreation() = %v, want ErrClaim that says %q", err, test.says)
			}
		})
	}
}

func TestSecretThatCannotBeResolvedStopsCreation(t *testing.T) {
	// The PersistentVolume could not be written, so no volume may be created.
	class := testClass(map[string]string{
		"csi.storage.k8s.io/node-publish-secret-name":      "${pvc.annotations['absent']}",
		"csi.storage.k8s.io/node-publish-secret-namespace": "n",
	})
	if _, err := NewCreation(testOptions(), testClaim(), class, "pvc-1"); !errors.Is(err, ErrClass) {
		t.Errorf("NewCreation() = %v, want ErrClass", err)
	}
}

func TestFractionOfAByteIsRoundedUp(t *testing.T) {
	claim := testClaim(func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1500m")
	})
	creation, err := NewCreation(testOptions(), claim, testClass(nil), "pvc-1")
	if err != nil {
		t.Fatal(err)
	}
	if got := creation.Request.CapacityRange.RequiredBytes; got != 2 {
		t.Errorf("requested %d bytes, want 2", got)
	}
}
