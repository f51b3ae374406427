package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNodePluginKilled: pods go on with their volumes without the plugin, and
// the plugin that comes after it publishes and unpublishes.
func TestNodePluginKilled(t *testing.T) {
	e := newEnv(t)
	claim := e.createClaim(e.createClass(nil))
	volume := e.waitBound(claim)
	log := filepath.Join(e.export, volume.Name, "log")
	// The file stays open, so that a broken mount cannot be hidden by a new one.
	user := e.startPod(claim, "exec 3>>/data/log; while echo line >&3; do sleep 0.2; done")
	e.waitPhase(user, corev1.PodRunning)
	e.waitGrowth(log, 0)

	pod := e.nodePod()
	plugin := e.find(pod, pluginProgram)
	if err := kill(plugin); err != nil {
		t.Fatal(err)
	}
	e.waitGrowth(log, size(t, log))
	e.expectMounted(volume.Name, user)
	e.waitRestarted(pod, pluginProgram, plugin)
	e.waitGrowth(log, size(t, log))

	second := e.startPod(claim, "test -s /data/log && echo second > /data/second && exec sleep 3600")
	e.waitPhase(second, corev1.PodRunning)
	e.waitContent(filepath.Join(e.export, volume.Name, "second"), "second\n")
	e.expectMounted(volume.Name, user, second)
	e.waitGrowth(log, size(t, log))
	e.expectNeverRestarted(user)

	e.deletePods(user, second)
	e.waitUnmounted(volume.Name)
	e.deleteClaim(claim)
	e.expectOnExport()
}

func size(t *testing.T, file string) int64 {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// waitGrowth waits until the file on the server's own disk is larger than it was.
func (e *env) waitGrowth(file string, was int64) {
	e.t.Helper()
	e.eventually(fmt.Sprintf("%s grows beyond %d bytes", filepath.Base(file), was), func(context.Context) error {
		info, err := os.Stat(file)
		if err == nil && info.Size() <= was {
			err = fmt.Errorf("%d bytes, was %d", info.Size(), was)
		}
		return err
	})
}

func (e *env) expectNeverRestarted(pod *corev1.Pod) {
	e.t.Helper()
	got, err := e.client.CoreV1().Pods(e.namespace).Get(e.t.Context(), pod.Name, metav1.GetOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	if got.Status.Phase != corev1.PodRunning || len(got.Status.ContainerStatuses) != 1 {
		e.t.Fatalf("pod %s is %s", pod.Name, got.Status.Phase)
	}
	if n := got.Status.ContainerStatuses[0].RestartCount; n != 0 {
		e.t.Errorf("pod %s was restarted %d times", pod.Name, n)
	}
}
