package integration

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
)

const patience = 30 * time.Second

// world is one driver with its StorageClass and namespace.
type world struct {
	*testing.T
	// name is the test's, of the class and of the namespace.
	name       string
	driverName string
	client     kubernetes.Interface
	driver     *drivertest.Driver
	dir        string
	account    account
	kubeconfig string
}

// newWorld is for tests without leader election: each has a driver of its own, so
// they run at the same time.
func newWorld(t *testing.T, change ...func(*storagev1.StorageClass)) *world {
	t.Helper()
	return newWorldWith(t, nil, change...)
}

// newWorldWith has what features of the chart allow, too.
func newWorldWith(t *testing.T, with []string, change ...func(*storagev1.StorageClass)) *world {
	t.Helper()
	w := build(t)
	w.driverName = w.name
	t.Parallel()
	w.account = w.allowedBy(with...)
	w.setUp(change...)
	return w
}

func build(t *testing.T) *world {
	t.Helper()
	if shared == nil {
		t.Skipf("needs %s and %s", kubeBinaryEnv, provisionerEnv)
	}
	name := regexp.MustCompile("[A-Z]").ReplaceAllString(strings.TrimPrefix(t.Name(), "Test"), "-$0")
	name = strings.ReplaceAll(name, "/", "-")
	return &world{
		T:       t,
		name:    strings.Trim(strings.ToLower(name), "-"),
		client:  shared.Admin,
		dir:     t.TempDir(),
		account: accountOf(baseRelease),
	}
}

func (w *world) setUp(change ...func(*storagev1.StorageClass)) {
	w.Helper()
	w.startDriver()
	w.prepare(change...)
}

func (w *world) startDriver() {
	w.Helper()
	w.driver = drivertest.New(w.driverName)
	if err := w.driver.Start(w.socket()); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = w.driver.Stop() })
}

// prepare makes all of the world but its driver.
func (w *world) prepare(change ...func(*storagev1.StorageClass)) {
	w.Helper()
	w.createClass(w.name, change...)
	w.createNamespace(w.name)
	w.allowJournal()
	var err error
	if w.kubeconfig, err = shared.ServiceAccountKubeconfig(w.Context(), w.account.namespace, w.account.name); err != nil {
		w.Fatal(err)
	}
}

func (w *world) createNamespace(name string) {
	w.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := w.client.CoreV1().Namespaces().Create(w.Context(), namespace, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) createClass(name string, change ...func(*storagev1.StorageClass)) {
	w.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta:   metav1.ObjectMeta{Name: name},
		Provisioner:  w.driverName,
		Parameters:   map[string]string{"server": "a"},
		MountOptions: []string{"hard"},
	}
	for _, apply := range change {
		apply(class)
	}
	if _, err := w.client.StorageV1().StorageClasses().Create(w.Context(), class, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) socket() string { return filepath.Join(w.dir, "csi.sock") }

// eventually fails the test with check's last error when it does not succeed in time.
func (w *world) eventually(what string, check func() error) {
	w.Helper()
	w.within(patience, what, check)
}

func (w *world) within(limit time.Duration, what string, check func() error) {
	w.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("never came true: %s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func gibibyte() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
}

// claim is one of the world's class that is not made yet.
func (w *world) claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &w.name,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources: corev1.VolumeResourceRequirements{
				Requests: gibibyte(),
			},
		},
	}
}

func (w *world) createClaim(name string, change ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	w.Helper()
	claim := w.claim(name)
	for _, apply := range change {
		apply(claim)
	}
	claim, err := w.client.CoreV1().PersistentVolumeClaims(w.name).Create(w.Context(), claim, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return claim
}

func (w *world) deleteClaim(name string) {
	w.Helper()
	if err := w.client.CoreV1().PersistentVolumeClaims(w.name).Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// awaitBound returns the volume that the claim is bound to.
func (w *world) awaitBound(claim string) *corev1.PersistentVolume {
	w.Helper()
	var volume *corev1.PersistentVolume
	w.eventually("claim "+claim+" is bound", func() error {
		got, err := w.client.CoreV1().PersistentVolumeClaims(w.name).Get(w.Context(), claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("it is %s", got.Status.Phase)
		}
		volume, err = w.client.CoreV1().PersistentVolumes().Get(w.Context(), got.Spec.VolumeName, metav1.GetOptions{})
		return err
	})
	return volume
}

func (w *world) awaitVolumeGone(name string) {
	w.Helper()
	w.eventually("volume "+name+" is gone", func() error {
		_, err := w.client.CoreV1().PersistentVolumes().Get(w.Context(), name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		default:
			return errors.New("it is there")
		}
	})
}

// volumes are the world's own.
func (w *world) volumes() []corev1.PersistentVolume {
	w.Helper()
	list, err := w.client.CoreV1().PersistentVolumes().List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	var own []corev1.PersistentVolume
	for _, volume := range list.Items {
		if volume.Spec.StorageClassName == w.name {
			own = append(own, volume)
		}
	}
	return own
}

func (w *world) awaitEvent(claim, reason, text string) corev1.Event {
	w.Helper()
	var found corev1.Event
	w.eventually(fmt.Sprintf("%s event on %s that says %q", reason, claim, text), func() error {
		list, err := w.client.CoreV1().Events(w.name).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var messages []string
		for _, event := range list.Items {
			if event.InvolvedObject.Name == claim && event.Reason == reason && strings.Contains(event.Message, text) {
				found = event
				return nil
			}
			messages = append(messages, event.Reason+": "+event.Message)
		}
		return fmt.Errorf("there are %q", messages)
	})
	return found
}

// messages are of the events about a claim, each once.
func (w *world) messages(claim, reason string) []string {
	w.Helper()
	list, err := w.client.CoreV1().Events(w.name).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	var messages []string
	for _, event := range list.Items {
		if event.InvolvedObject.Name == claim && event.Reason == reason {
			messages = append(messages, event.Message)
		}
	}
	return messages
}
