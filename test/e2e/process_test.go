package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	pluginProgram      = "/nfsplugin"
	provisionerProgram = "/csi-provisioner"
)

// processes finds, from the node, the processes that run program in the pod.
func processes(pod *corev1.Pod, program string) ([]int, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, dir := range dirs {
		args, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue // ended meanwhile
		}
		if first, _, _ := bytes.Cut(args, []byte{0}); string(first) != program {
			continue
		}
		cgroup, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || !strings.Contains(string(cgroup), string(pod.UID)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// find is processes for one that must be there.
func (e *env) find(pod *corev1.Pod, program string) int {
	e.t.Helper()
	pids, err := processes(pod, program)
	if err != nil || len(pids) != 1 {
		e.t.Fatalf("processes of %s in pod %s: %v, %v; want one", program, pod.Name, pids, err)
	}
	return pids[0]
}

func kill(pids ...int) error {
	var errs []error
	for _, pid := range pids {
		errs = append(errs, syscall.Kill(pid, syscall.SIGKILL))
	}
	return errors.Join(errs...)
}

// waitRestarted waits until program runs in the pod again as another process.
func (e *env) waitRestarted(pod *corev1.Pod, program string, old int) {
	e.t.Helper()
	e.eventually(program+" of "+pod.Name+" runs again", func(context.Context) error {
		pids, err := processes(pod, program)
		if err == nil && (len(pids) != 1 || pids[0] == old) {
			err = fmt.Errorf("processes: %v, was %d", pids, old)
		}
		return err
	})
}

// nodePod is the driver's pod on the only node.
func (e *env) nodePod() *corev1.Pod {
	e.t.Helper()
	pods := e.driverPods("node")
	if len(pods) != 1 {
		e.t.Fatalf("%d node pods, want 1", len(pods))
	}
	return &pods[0]
}

func (e *env) driverPods(component string) []corev1.Pod {
	e.t.Helper()
	pods, err := e.client.CoreV1().Pods(driverNamespace).List(e.t.Context(), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=nfs-csi,app.kubernetes.io/component=" + component,
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}
