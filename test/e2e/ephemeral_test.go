package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// inlineShare is what pods may have inline volumes on.
func inlineShare() string { return filepath.Join(os.Getenv("LAB_EXPORT_XFS"), "scratch") }

func inlineServers() string { return os.Getenv("LAB_NFS_SERVER") + ":" + inlineShare() }

// TestInlineVolumes checks that a pod gets the directory it names if an administrator
// allows it, that the directory outlives the pod, and that others get an error.
func TestInlineVolumes(t *testing.T) {
	e := newEnv(t)
	dir := filepath.Join(inlineShare(), e.namespace)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	precious := ownedFile(t, dir)
	inline := func(script string, attributes map[string]string) *corev1.Pod {
		attributes["server"] = e.server
		return e.startPodWith(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: driverName, VolumeAttributes: attributes}}, script, fsGroup)
	}
	allowed := inline("echo inline >/data/file", map[string]string{"share": inlineShare(), "subDir": e.namespace})
	refused := map[string]*corev1.Pod{
		e.export: inline("true", map[string]string{"share": e.export}),
		"soft":   inline("true", map[string]string{"share": dir, "mountOptions": "soft"}),
	}
	e.waitPhase(allowed, corev1.PodSucceeded)
	for says, pod := range refused {
		e.waitNotMounted(pod, says)
	}
	pods := []*corev1.Pod{allowed}
	for _, pod := range refused {
		pods = append(pods, pod)
	}
	e.deletePods(pods...)
	e.waitUnmounted(string(allowed.UID))
	if b, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(b) != "inline\n" {
		t.Errorf("after the pod its file holds %q, %v", b, err)
	}
	if now := ownership(t, dir, "precious"); now != precious {
		t.Errorf("the pod's fsGroup has made of %s %s", precious, now)
	}
	e.expectOnExport()
}

// fsGroup asks kubelet to give all files of a pod's volumes to a group.
func fsGroup(spec *corev1.PodSpec) {
	group := int64(4242)
	spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
}

// ownedFile makes a file of somebody's in the directory and returns what ownership
// says of both.
func ownedFile(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "precious")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chown(file, 7, 8)); err != nil {
		t.Fatal(err)
	}
	return ownership(t, dir, "precious")
}

// ownership is mode, owner and group of a directory and of a file in it.
func ownership(t *testing.T, dir, file string) string {
	t.Helper()
	var all []string
	for _, name := range []string{dir, filepath.Join(dir, file)} {
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s %o %d:%d", filepath.Base(name), st.Mode, st.Uid, st.Gid))
	}
	return strings.Join(all, ", ")
}

// waitNotMounted waits for an event on the pod that says why a volume of it is
// not mounted.
func (e *env) waitNotMounted(pod *corev1.Pod, says string) {
	e.t.Helper()
	e.waitEvent("pod", pod, "FailedMount", says)
}
