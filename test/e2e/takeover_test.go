package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nfs-csi/nfs-csi/test/predecessor"
)

// TestTakeover replaces csi-driver-nfs by the commands of docs/migrate.md. It starts with the
// objects that csi-driver-nfs v4.13.4 and its chart create, and volumes of all forms of ID that
// its releases have written (testdata/csi-driver-nfs).
func TestTakeover(t *testing.T) {
	needsCluster(t)
	if err := uninstall(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := newEnvWithoutDriver(t, os.Getenv("LAB_EXPORT_XFS"), metav1.ObjectMeta{Name: "team"})
	m := takeover{env: e}
	m.setUp()
	running := m.startWriter("plain")

	w := e.newWalk()
	if err := os.CopyFS(filepath.Join(w.run.Dir, "deploy"), os.DirFS("../../deploy")); err != nil {
		t.Fatal(err)
	}
	installed.dir = w.run.Dir
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := uninstall(ctx); err != nil {
			t.Error(err)
		}
	})
	w.do(t, "### Replace the driver")
	e.expectJournalIn(driverNamespace, "csi-provisioner.nfs-csi-k8s-io.")
	m.mustStillWrite(running)

	m.serve()
	m.snapshotOwn()
	m.copyAll()
	m.grow()
	m.createOfEachClass()
	m.deleteAll()
}

// takeover is what csi-driver-nfs has left behind, and what was made of it since.
type takeover struct {
	*env
	volumes []predecessor.Volume
	// kept are directories of new volumes that stay when the volumes are deleted.
	kept []string
}

func (m *takeover) setUp() {
	m.t.Helper()
	m.apply("csi-driver-nfs/driver.yaml", "csi-driver-nfs/classes.yaml")
	m.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := kubectl(ctx, "delete", "--ignore-not-found", "-f", "testdata/csi-driver-nfs/classes.yaml"); err != nil {
			m.t.Error(err)
		}
	})
	m.volumes = m.legacyVolumes("csi-driver-nfs/volumes.yaml")
	for _, v := range m.volumes {
		m.waitClaim(v.Claim, v.Name)
	}
	m.apply("csi-driver-nfs/snapshots.yaml")
	m.legacySnapshot("plain", m.volume("plain").Dir, ".tar.gz", "archived from plain\n")
	m.legacySnapshot("nested", m.volume("nested").Name, ".tar.gz", "archived from nested\n")
	m.legacySnapshot("uncompressed", m.volume("three-parts").Dir, ".tar", "archived from three-parts\n")
}

func (m *takeover) volume(claim string) predecessor.Volume {
	m.t.Helper()
	for _, v := range m.volumes {
		if v.Claim == claim {
			return v
		}
	}
	m.t.Fatalf("no volume of claim %s", claim)
	return predecessor.Volume{}
}

// startWriter runs a pod that keeps writing to a volume.
func (m *takeover) startWriter(claim string) *corev1.Pod {
	m.t.Helper()
	pod := m.startPod(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: claim}},
		`while echo now >>/data/log; do sleep 0.2; done`)
	m.waitPhase(pod, corev1.PodRunning)
	return pod
}

// mustStillWrite checks that the writer of the volume `plain` has run without interruption,
// and that the driver unmounts what its predecessor has mounted.
func (m *takeover) mustStillWrite(pod *corev1.Pod) {
	m.t.Helper()
	log := filepath.Join(m.export, m.volume("plain").Dir, "log")
	before, err := os.Stat(log)
	if err != nil {
		m.t.Fatal(err)
	}
	m.eventually("pod "+pod.Name+" still writes", func(ctx context.Context) error {
		now, err := os.Stat(log)
		if err == nil && now.Size() <= before.Size() {
			err = fmt.Errorf("the file has %d bytes, as before", now.Size())
		}
		return err
	})
	got, err := m.client.CoreV1().Pods(m.namespace).Get(m.t.Context(), pod.Name, metav1.GetOptions{})
	if err != nil || got.UID != pod.UID || got.Status.ContainerStatuses[0].RestartCount != 0 {
		m.t.Errorf("the pod is %+v, %v", got.Status, err)
	}
	m.deletePods(pod)
	m.waitUnmounted(string(pod.UID))
}

// serve has one pod read from all volumes and write to them.
func (m *takeover) serve() {
	m.t.Helper()
	for _, v := range m.volumes {
		m.mustRead(v.Dir, "file", v.Content())
	}
	pod := m.startPodWith(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
		`for d in /mnt/*; do grep -qx "data of ${d##*/}" $d/file && echo now >$d/added || exit 1; done`, m.mountAll)
	m.waitPhase(pod, corev1.PodSucceeded)
	for _, v := range m.volumes {
		m.mustRead(v.Dir, "added", "now\n")
	}
	m.deletePods(pod)
	if info, err := os.Stat(filepath.Join(m.export, m.volume("permissions").Dir)); err != nil || info.Mode().Perm() != 0o770 {
		m.t.Errorf("mountPermissions: the directory is %v, %v", info, err)
	}
}

func (m *takeover) mountAll(spec *corev1.PodSpec) {
	for _, v := range m.volumes {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: v.Claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.Claim},
		}})
		spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: v.Claim, MountPath: "/mnt/" + v.Claim})
	}
}

// snapshotOwn takes snapshots of volumes of csi-driver-nfs, with its class.
func (m *takeover) snapshotOwn() {
	m.t.Helper()
	m.apply("csi-driver-nfs/snapshots-after.yaml")
	for _, name := range []string{"after-slash", "after-nested"} {
		m.waitSnapshotReady(name)
	}
}

// copyAll restores snapshots, old and new, and clones volumes: claims of the classes of
// csi-driver-nfs, which have the content of their source.
func (m *takeover) copyAll() {
	m.t.Helper()
	m.apply("csi-driver-nfs/copies.yaml")
	copies := map[string]string{
		"restored-plain":        "archived from plain\n",
		"restored-nested":       "archived from nested\n",
		"restored-uncompressed": "archived from three-parts\n",
		"restored-after-slash":  m.volume("slash").Content(),
		"restored-after-nested": m.volume("nested").Content(),
		"cloned-slash":          m.volume("slash").Content(),
		"cloned-nested":         m.volume("nested").Content(),
		"cloned-archived":       m.volume("archived").Content(),
	}
	for claim, content := range copies {
		m.mustRead(m.waitAnyVolume(claim).Name, "file", content)
	}
}

// waitAnyVolume waits until a claim is bound, and returns its volume.
func (e *env) waitAnyVolume(claim string) *corev1.PersistentVolume {
	e.t.Helper()
	var volume *corev1.PersistentVolume
	e.eventually("claim "+claim+" is Bound", func(ctx context.Context) error {
		got, err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Get(ctx, claim, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("it is %s", got.Status.Phase)
		}
		volume, err = e.client.CoreV1().PersistentVolumes().Get(ctx, got.Spec.VolumeName, metav1.GetOptions{})
		return err
	})
	return volume
}

// createOfEachClass creates volumes of all classes of csi-driver-nfs. If it came back, it would
// find them: by their attributes to mount them, and by their ID to delete them as their class
// says.
func (m *takeover) createOfEachClass() {
	m.t.Helper()
	classes := map[string]struct{ dir, policy, kept string }{
		"nfs-csi":            {"VOLUME", "delete", ""},
		"nfs-subdir":         {"team/CLAIM", "delete", ""},
		"nfs-retain":         {"VOLUME", "retain", "VOLUME"},
		"nfs-archive":        {"VOLUME", "archive", "archived-VOLUME"},
		"nfs-archive-subdir": {"team/CLAIM", "archive", "team/archived-CLAIM"},
		"nfs-permissions":    {"VOLUME", "delete", ""},
		"nfs-capitals":       {"VOLUME", "delete", ""},
		"nfs-secret":         {"VOLUME", "delete", ""},
	}
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for class := range classes {
		claims[class] = m.createClaimAs(metav1.ObjectMeta{Name: "of-" + class}, class, resource.MustParse(claimSize), nil)
	}
	for class, claim := range claims {
		pv := m.waitBound(claim)
		names := strings.NewReplacer("VOLUME", pv.Name, "CLAIM", claim.Name)
		dir, want := names.Replace(classes[class].dir), classes[class]
		if got, err := m.place().Directory(pv); err != nil || got != dir {
			m.t.Errorf("class %s: by its attributes, the volume is %q, %v; want %q", class, got, err, dir)
		}
		if info, err := os.Stat(filepath.Join(m.export, dir)); err != nil || !info.IsDir() {
			m.t.Errorf("class %s: %s is %v, %v", class, dir, info, err)
		}
		// What csi-driver-nfs reads: server#share#subDir#uuid#onDelete.
		parts := strings.Split(pv.Spec.CSI.VolumeHandle, "#")
		if len(parts) != 5 || parts[0] != m.server || "/"+parts[1] != m.export || parts[2] != dir || parts[4] != want.policy {
			m.t.Errorf("class %s: the volume's ID is %q", class, pv.Spec.CSI.VolumeHandle)
		}
		if want.kept != "" {
			m.kept = append(m.kept, names.Replace(want.kept))
		}
	}
}

// grow expands volumes of every kind of ID but those written by hand.
func (m *takeover) grow() {
	m.t.Helper()
	for _, v := range m.volumes {
		if v.Claim != "static" {
			m.request(v.Claim, "2Gi")
		}
	}
	for _, v := range m.volumes {
		if v.Claim != "static" {
			m.waitSize(v.Claim, v.Name, "2Gi")
		}
	}
}

// deleteAll deletes all claims and snapshots, and looks what is left on the export.
func (m *takeover) deleteAll() {
	m.t.Helper()
	for _, kind := range []string{"pvc", "volumesnapshot"} {
		if err := kubectl(m.t.Context(), "-n", m.namespace, "delete", kind, "--all", "--wait=false"); err != nil {
			m.t.Fatal(err)
		}
	}
	m.eventually("volumes and snapshots are gone", func(ctx context.Context) error {
		pvs, err := m.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		contents, err := m.snapshotAPI("volumesnapshotcontents").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var left []string
		for _, pv := range pvs.Items {
			if pv.Name != "static" {
				left = append(left, pv.Name)
			}
		}
		if len(left)+len(contents.Items) > 0 {
			return fmt.Errorf("volumes %q, and %d contents of snapshots", left, len(contents.Items))
		}
		return nil
	})
	if err := kubectl(m.t.Context(), "delete", "pv", "static"); err != nil {
		m.t.Fatal(err)
	}
	retained := m.volume("retained").Dir
	var top, nested []string
	for _, dir := range append(m.kept, "archived-"+m.volume("archived").Dir, "static", retained, "team/archived-nested-archived") {
		if name, found := strings.CutPrefix(dir, m.namespace+"/"); found {
			nested = append(nested, name)
			continue
		}
		top = append(top, dir)
	}
	m.expectOnExport(append(top, m.namespace)...)
	m.mustRead(retained, "file", m.volume("retained").Content())
	m.mustRead("static", "file", m.volume("static").Content())
	m.mustRead("archived-"+m.volume("archived").Dir, "file", m.volume("archived").Content())
	m.mustRead("team/archived-nested-archived", "file", m.volume("nested-archived").Content())
	inTeam := *m.env
	inTeam.export = filepath.Join(m.export, m.namespace)
	inTeam.expectDirectories(nested...)
}

// expectJournalIn waits for a ConfigMap whose name begins with prefix: without the permission
// to write it, csi-provisioner creates volumes and records none.
func (e *env) expectJournalIn(namespace, prefix string) {
	e.t.Helper()
	e.eventually("the journal "+prefix+" is written", func(ctx context.Context) error {
		maps, err := e.client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var names []string
		for _, m := range maps.Items {
			if strings.HasPrefix(m.Name, prefix) {
				return nil
			}
			names = append(names, m.Name)
		}
		return fmt.Errorf("the ConfigMaps of %s are %q", namespace, names)
	})
}

// read returns a file of a volume from the server's disk.
func (e *env) read(volume, name string) string {
	e.t.Helper()
	content, err := os.ReadFile(filepath.Join(e.export, volume, name))
	if err != nil {
		e.t.Fatal(err)
	}
	return string(content)
}
