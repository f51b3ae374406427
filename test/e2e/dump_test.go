package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	dumpTimeout = 30 * time.Second
	logLines    = 150
)

func contains(list []string, s string) bool { return slices.Contains(list, s) }

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// dumpNamespace prints what helps to understand a failure; errors are printed too.
func dumpNamespace(w io.Writer, client kubernetes.Interface, namespace string) {
	ctx, cancel := context.WithTimeout(context.Background(), dumpTimeout)
	defer cancel()
	d := dumper{ctx: ctx, w: w, client: client}
	d.printf("---- namespace %s\n", namespace)
	d.claims(namespace)
	d.events(namespace)
	d.pods(namespace, false)
}

func dumpDriver(w io.Writer, client kubernetes.Interface) {
	ctx, cancel := context.WithTimeout(context.Background(), dumpTimeout)
	defer cancel()
	d := dumper{ctx: ctx, w: w, client: client}
	d.printf("---- driver\n")
	d.volumes()
	d.events(driverNamespace)
	d.pods(driverNamespace, true)
}

type dumper struct {
	ctx    context.Context
	w      io.Writer
	client kubernetes.Interface
}

func (d dumper) printf(format string, args ...any) { _, _ = fmt.Fprintf(d.w, format, args...) }

func (d dumper) claims(namespace string) {
	claims, err := d.client.CoreV1().PersistentVolumeClaims(namespace).List(d.ctx, metav1.ListOptions{})
	if err != nil {
		d.printf("claims: %v\n", err)
		return
	}
	for _, c := range claims.Items {
		d.printf("claim %s %s uid=%s volume=%s\n", c.Name, c.Status.Phase, c.UID, c.Spec.VolumeName)
	}
}

func (d dumper) volumes() {
	volumes, err := d.client.CoreV1().PersistentVolumes().List(d.ctx, metav1.ListOptions{})
	if err != nil {
		d.printf("volumes: %v\n", err)
		return
	}
	for _, v := range volumes.Items {
		d.printf("volume %s %s deletion=%v finalizers=%v\n", v.Name, v.Status.Phase, v.DeletionTimestamp, v.Finalizers)
	}
}

func (d dumper) events(namespace string) {
	events, err := d.client.CoreV1().Events(namespace).List(d.ctx, metav1.ListOptions{})
	if err != nil {
		d.printf("events: %v\n", err)
		return
	}
	for _, e := range events.Items {
		d.printf("event %s %s/%s %s x%d: %s\n", e.LastTimestamp.Format(time.TimeOnly),
			e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Count, e.Message)
	}
}

func (d dumper) pods(namespace string, previous bool) {
	pods, err := d.client.CoreV1().Pods(namespace).List(d.ctx, metav1.ListOptions{})
	if err != nil {
		d.printf("pods: %v\n", err)
		return
	}
	for _, pod := range pods.Items {
		for _, status := range pod.Status.ContainerStatuses {
			d.log(pod, status.Name, false)
			if previous && status.RestartCount > 0 {
				d.log(pod, status.Name, true)
			}
		}
	}
	for _, pod := range pods.Items {
		for _, status := range pod.Status.ContainerStatuses {
			state, err := json.Marshal(status.State)
			if err != nil {
				state = []byte(err.Error())
			}
			d.printf("pod %s %s container %s ready=%t restarts=%d state=%s\n",
				pod.Name, pod.Status.Phase, status.Name, status.Ready, status.RestartCount, state)
		}
	}
}

func (d dumper) log(pod corev1.Pod, container string, previous bool) {
	lines := int64(logLines)
	stream, err := d.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: container, Previous: previous, TailLines: &lines,
	}).Stream(d.ctx)
	if err != nil {
		d.printf("log of %s/%s: %v\n", pod.Name, container, err)
		return
	}
	defer stream.Close()
	d.printf("---- log of %s/%s (previous=%t)\n", pod.Name, container, previous)
	_, _ = io.Copy(d.w, stream)
}
