package e2e

import (
	"context"
	"fmt"
	"strings"

	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"
)

// mountsOf lists the node's mounts that belong to the volume.
func mountsOf(volume string) ([]*mountinfo.Info, error) {
	return mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return !strings.Contains(m.Mountpoint, volume), false
	})
}

const kubeletPods = "/var/lib/kubelet/pods/"

// expectMounted checks that the volume is one NFS mount for each of the pods,
// where kubelet wants it; the node may have other views of its directory.
func (e *env) expectMounted(volume string, pods ...*corev1.Pod) {
	e.t.Helper()
	mounts, err := mountsOf(volume)
	if err != nil {
		e.t.Fatal(err)
	}
	byPod := map[string]int{}
	for _, m := range mounts {
		if !strings.HasPrefix(m.FSType, "nfs") || !strings.HasSuffix(m.Source, "/"+volume) {
			e.t.Errorf("%s is %s of type %s, want the volume's directory over NFS", m.Mountpoint, m.Source, m.FSType)
		}
		for _, pod := range pods {
			if strings.HasPrefix(m.Mountpoint, kubeletPods+string(pod.UID)+"/") {
				byPod[pod.Name]++
			}
		}
	}
	for _, pod := range pods {
		if byPod[pod.Name] != 1 {
			e.t.Errorf("pod %s has %d mounts of %s, want 1", pod.Name, byPod[pod.Name], volume)
		}
	}
}

func (e *env) waitUnmounted(volume string) {
	e.t.Helper()
	e.eventually("the node has no mount of "+volume, func(context.Context) error {
		mounts, err := mountsOf(volume)
		if err == nil && len(mounts) > 0 {
			err = fmt.Errorf("%d mounts, the first at %s", len(mounts), mounts[0].Mountpoint)
		}
		return err
	})
}
