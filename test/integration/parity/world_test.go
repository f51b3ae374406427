package parity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nfs-csi/nfs-csi/test/integration/cluster"
)

const (
	// account is csi-provisioner's in each scenario.
	account = "csi-provisioner"
	// socketName is short: a socket's path has at most 107 bytes.
	socketName = "s"

	pollInterval = 50 * time.Millisecond
	// stopTimeout is for csi-provisioner after SIGTERM.
	stopTimeout = 8 * time.Second
	// settling is for events, which are sent in the background.
	settling = 300 * time.Millisecond
)

// fastFlags make retries fast enough for a test.
func fastFlags() []string {
	return []string{"--timeout=5s", "--retry-interval-start=200ms", "--retry-interval-max=1s", "--kube-api-qps=200", "--kube-api-burst=400"}
}

// world is a scenario that runs.
type world struct {
	*testing.T
	scenario
	cluster     *cluster.Cluster
	client      kubernetes.Interface
	dynamic     dynamic.Interface
	provisioner string // the program
	// id is unique to the run, and its name in Kubernetes.
	id         string
	driverName string
	dir        string
	kubeconfig string
	port       int
	driver     *driver
	process    *cluster.Process
	// auditFrom is where the audit log ended when the scenario began.
	auditLog  string
	auditFrom int64

	mu     sync.Mutex
	record *record
	uids   []string // pairs of a UID and the text for it in records
}

// drivers are locks by name of driver, for those that scenarios choose.
type drivers struct{ locks sync.Map }

func (d *drivers) lock(name string) (unlock func()) {
	lock, _ := d.locks.LoadOrStore(name, &sync.Mutex{})
	lock.(*sync.Mutex).Lock()
	return lock.(*sync.Mutex).Unlock
}

// play runs the scenario and returns what there was to see.
func (w *world) play(permissions permissions) *record {
	w.Helper()
	w.setUp(permissions)
	w.perform(w.Steps)
	time.Sleep(settling)
	w.end()
	w.collect()
	w.cleanUp()
	return w.record
}

func (w *world) setUp(permissions permissions) {
	w.Helper()
	port, err := freePort()
	if err != nil {
		w.Fatal(err)
	}
	w.port = port
	filled, err := w.filled("$NAME", w.id, "$DRIVER", w.driverName, "$PORT", fmt.Sprint(port))
	if err != nil {
		w.Fatal(err)
	}
	filled.Driver.Name = w.driverName
	w.scenario, w.record = filled, newRecord()
	w.driver = newDriver(filled.Driver, w.perform)
	for _, namespace := range []string{w.id, w.system()} {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if _, err := w.client.CoreV1().Namespaces().Create(w.Context(), object, metav1.CreateOptions{}); err != nil {
			w.Fatal(err)
		}
	}
	service := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}
	if _, err := w.client.CoreV1().ServiceAccounts(w.system()).Create(w.Context(), service, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	if err := permissions.grant(w.Context(), w); err != nil {
		w.Fatal(err)
	}
	if err := w.makeClass(); err != nil {
		w.Fatal(err)
	}
	if w.kubeconfig, err = w.cluster.ServiceAccountKubeconfig(w.Context(), w.system(), account); err != nil {
		w.Fatal(err)
	}
	if err := w.driver.serve(w.socket()); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(w.driver.server.Stop)
}

// makeClass creates the scenario's StorageClass.
func (w *world) makeClass() error {
	class := w.Class.DeepCopy()
	class.Name = w.id
	if class.Provisioner == "" {
		class.Provisioner = w.driverName
	}
	if class.Parameters == nil {
		class.Parameters = map[string]string{"kept": "as-is"}
	}
	_, err := w.client.StorageV1().StorageClasses().Create(w.Context(), class, metav1.CreateOptions{})
	return err
}

// system is the namespace of csi-provisioner.
func (w *world) system() string { return w.id + "-sys" }

func (w *world) socket() string { return filepath.Join(w.dir, socketName) }

// start starts csi-provisioner, with no environment but the scenario's.
func (w *world) start() error {
	args := []string{"-i", "NAMESPACE=" + w.system()}
	args = append(args, w.Env...)
	args = append(args, w.provisioner, "--csi-address="+w.socket(), "--kubeconfig="+w.kubeconfig, "--leader-election-namespace="+w.system())
	if !w.Bare {
		args = append(args, fastFlags()...)
	}
	env, err := exec.LookPath("env")
	if err != nil {
		return err
	}
	process, err := cluster.StartProcess(w.dir, "csi-provisioner", env, append(args, w.Flags...)...)
	if err == nil {
		w.process = process
		w.Cleanup(func() {
			if err := process.Kill(); err != nil {
				w.Error(err)
			}
		})
	}
	return err
}

func (w *world) exited() bool {
	if w.process == nil {
		return false
	}
	select {
	case <-w.process.Exited():
		return true
	default:
		return false
	}
}

// status is how csi-provisioner ended, as a shell has it.
func (w *world) status() int {
	var failed *exec.ExitError
	err := w.process.Wait(context.Background())
	if !errors.As(err, &failed) {
		return 0
	}
	if ended, ok := failed.Sys().(syscall.WaitStatus); ok && ended.Signaled() {
		const signaled = 128
		return signaled + int(ended.Signal())
	}
	return failed.ExitCode()
}

// terminate ends csi-provisioner with SIGTERM.
func (w *world) terminate() int {
	if err := w.process.Stop(stopTimeout); err != nil {
		w.Error(err)
	}
	return w.status()
}

// end notes whether csi-provisioner still runs, and ends it.
func (w *world) end() {
	switch {
	case w.process == nil:
	case w.exited():
		status := w.status()
		w.record.Exit = &status
	default:
		w.terminate()
	}
}

// await notes whether something came true in time.
func (w *world) await(what string, within time.Duration, check func() bool) bool {
	deadline := time.Now().Add(within)
	for {
		switch {
		case check():
			w.milestone(what, "yes")
			return true
		case w.exited():
			w.milestone(what, "the process has died")
			return false
		case time.Now().After(deadline):
			w.milestone(what, "no")
			return false
		}
		time.Sleep(pollInterval)
	}
}

func (w *world) milestone(what, result string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.Milestones = append(w.record.Milestones, what+": "+result)
}

// volumes are the scenario's PersistentVolumes.
func (w *world) volumes() []corev1.PersistentVolume {
	list, err := w.client.CoreV1().PersistentVolumes().List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Error(err)
		return nil
	}
	var own []corev1.PersistentVolume
	for _, volume := range list.Items {
		if volume.Spec.StorageClassName == w.id || volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.Namespace == w.id {
			own = append(own, volume)
		}
	}
	return own
}

// claim is empty if there is none of that name.
func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	claim, err := w.client.CoreV1().PersistentVolumeClaims(w.id).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		return &corev1.PersistentVolumeClaim{}
	}
	return claim
}

// cleanUp takes away what other scenarios would see.
func (w *world) cleanUp() {
	all := metav1.ListOptions{}
	if err := w.client.StorageV1().StorageClasses().DeleteCollection(w.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + w.id}); err != nil {
		w.Error(err)
	}
	w.removeNodes()
	list, err := w.client.CoreV1().PersistentVolumeClaims(w.id).List(w.Context(), all)
	if err != nil {
		w.Error(err)
		return
	}
	for _, claim := range list.Items {
		w.drop(kinds()["PersistentVolumeClaim"], w.id, claim.Name)
	}
	for _, volume := range w.volumes() {
		w.drop(kinds()["PersistentVolume"], "", volume.Name)
	}
}

func (w *world) removeNodes() {
	nodes, err := w.client.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{LabelSelector: ownerLabel + "=" + w.id})
	if err != nil {
		w.Error(err)
		return
	}
	for _, node := range nodes.Items {
		// Either may be gone already.
		_ = w.client.CoreV1().Nodes().Delete(w.Context(), node.Name, metav1.DeleteOptions{})
		_ = w.client.StorageV1().CSINodes().Delete(w.Context(), node.Name, metav1.DeleteOptions{})
	}
}

// makeNode makes a node that the driver runs on, with labels that are its topology.
func (w *world) makeNode(name string, labels map[string]string) error {
	full := w.id + "-" + name
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: full, Labels: map[string]string{ownerLabel: w.id}}}
	for key, value := range labels {
		node.Labels[key] = value
	}
	if _, err := w.client.CoreV1().Nodes().Create(w.Context(), node, metav1.CreateOptions{}); err != nil {
		return err
	}
	registered := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: full}}
	registered.Spec.Drivers = []storagev1.CSINodeDriver{{Name: w.driverName, NodeID: full, TopologyKeys: sortedKeys(labels)}}
	_, err := w.client.StorageV1().CSINodes().Create(w.Context(), registered, metav1.CreateOptions{})
	return err
}

// resolved replaces <uid of CLAIM>, also as JSON has it.
func (w *world) resolved(argument json.RawMessage) json.RawMessage {
	w.mu.Lock()
	defer w.mu.Unlock()
	var pairs []string
	for i := 0; i < len(w.uids); i += 2 {
		text := w.uids[i+1]
		pairs = append(pairs, text, w.uids[i], strings.NewReplacer("<", `\u003c`, ">", `\u003e`).Replace(text), w.uids[i])
	}
	return json.RawMessage(strings.NewReplacer(pairs...).Replace(string(argument)))
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
