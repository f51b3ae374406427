package manifests_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// TestInlineVolumesKeepTheirOwners: where inline volumes are mounted, kubelet must not change
// the owners and modes of their files, whatever the driver's name and the other values. After a takeover they are refused until something is listed.
func TestInlineVolumesKeepTheirOwners(t *testing.T) {
	const nfs, other = "nfs.csi.internal", "nfs.csi.k8s.io"
	for _, tt := range []struct {
		name       string
		components []string
		// declared in the CSIDriver, and mounted by the node plugin.
		declared, mounted bool
	}{
		{nfs, nil, false, false},
		{other, []string{"csi-driver-nfs"}, true, false},
		{nfs, []string{"ephemeral"}, true, true},
		{other, []string{"csi-driver-nfs", "ephemeral"}, true, true},
		{other, []string{"ephemeral", "csi-driver-nfs"}, true, true},
		{other, []string{"ephemeral", "snapshots", "csi-driver-nfs", "capacity"}, true, true},
		{nfs, []string{"ephemeral: {enabled: true, servers: [nas]}"}, true, true},
	} {
		t.Run(strings.Join(tt.components, ","), func(t *testing.T) {
			objects := compose(t, tt.components...)
			spec := decode[storagev1.CSIDriver](t, objects, "CSIDriver", tt.name).Spec
			policy, modes := storagev1.FileFSGroupPolicy, []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
			if tt.mounted {
				policy = storagev1.NoneFSGroupPolicy
			}
			if tt.declared {
				modes = append(modes, storagev1.VolumeLifecycleEphemeral)
			}
			if !slices.Equal(spec.VolumeLifecycleModes, modes) || *spec.PodInfoOnMount != tt.declared || *spec.FSGroupPolicy != policy {
				t.Errorf("volumeLifecycleModes are %v, podInfoOnMount %v, fsGroupPolicy %s", spec.VolumeLifecycleModes, *spec.PodInfoOnMount, *spec.FSGroupPolicy)
			}
			plugin := container(t, decode[appsv1.DaemonSet](t, objects, "DaemonSet", "nfs-csi-node").Spec.Template.Spec, "nfsplugin")
			if slices.Contains(plugin.Args, "--enable-ephemeral") != tt.mounted {
				t.Errorf("the node plugin has %q", plugin.Args)
			}
		})
	}
}
