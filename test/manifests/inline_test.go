package manifests_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// compose writes the kustomization of a user with these components.
func compose(t *testing.T, components ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	deploy, err := filepath.Rel(dir, filepath.Join(here, base))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources:\n  - %s\ncomponents:\n", deploy)
	for _, c := range components {
		text += fmt.Sprintf("  - %s/%s\n", deploy, c)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestInlineVolumesKeepTheirOwners: where inline volumes are mounted, kubelet must not change
// the owners and modes of their files, whatever the driver's name and the order of the
// components. After a takeover they are refused until something is listed.
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
		{other, []string{"expansion", "ephemeral", "snapshots", "csi-driver-nfs", "cluster-id"}, true, true},
	} {
		t.Run(strings.Join(tt.components, ","), func(t *testing.T) {
			dir := compose(t, tt.components...)
			spec := decodeOf[storagev1.CSIDriver](t, dir, "CSIDriver", tt.name).Spec
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
			plugin := container(t, decodeOf[appsv1.DaemonSet](t, dir, "DaemonSet", "nfs-csi-node").Spec.Template.Spec, "nfsplugin")
			if slices.Contains(plugin.Args, "--enable-ephemeral") != tt.mounted {
				t.Errorf("the node plugin has %q", plugin.Args)
			}
		})
	}
}
