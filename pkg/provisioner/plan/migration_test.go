package plan

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

const (
	cinderDriver = "cinder.csi.openstack.org"
	cinderPlugin = "kubernetes.io/cinder"
)

func cinderVolume(handle string, change ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	volume := &corev1.PersistentVolume{}
	volume.Spec.Cinder = &corev1.CinderPersistentVolumeSource{VolumeID: handle, FSType: "ext4"}
	for _, apply := range change {
		apply(volume)
	}
	return volume
}

func migratedTo(driver string) func(*corev1.PersistentVolume) {
	return func(volume *corev1.PersistentVolume) {
		metav1.SetMetaDataAnnotation(&volume.ObjectMeta, migratedToAnnotation, driver)
	}
}

func TestMigrationOfDrivers(t *testing.T) {
	if m := NewMigration("nfs.example"); !m.IsZero() || m.Names() != nil {
		t.Errorf("a driver of its own has taken over %v", m.Names())
	}
	if got := NewMigration(cinderDriver).Names(); len(got) != 1 || got[0] != cinderPlugin {
		t.Errorf("taken over is %v", got)
	}
}

func TestMigratedClaims(t *testing.T) {
	claim := func(provisioner, migratedTo string) *corev1.PersistentVolumeClaim {
		return testClaim(func(claim *corev1.PersistentVolumeClaim) {
			claim.Annotations = map[string]string{provisionerAnnotation: provisioner}
			if migratedTo != "" {
				claim.Annotations[migratedToAnnotation] = migratedTo
			}
		})
	}
	tests := map[string]struct {
		claim      *corev1.PersistentVolumeClaim
		wanted     bool
		waitsForIt bool
	}{
		"as the controller-manager does":   {claim(cinderDriver, cinderDriver), true, false},
		"the driver's own":                 {claim(cinderDriver, ""), true, false},
		"left to the driver":               {claim(cinderPlugin, cinderDriver), true, false},
		"the plugin's":                     {claim(cinderPlugin, ""), false, true},
		"left to another driver":           {claim(cinderPlugin, "other"), false, true},
		"another's":                        {claim("other", ""), false, false},
		"of another plugin, taken by this": {claim("kubernetes.io/aws-ebs", cinderDriver), false, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := NewMigration(cinderDriver)
			if got := m.Wants(test.claim, cinderDriver); got != test.wanted {
				t.Errorf("wants it: %v, want %v", got, test.wanted)
			}
			if got := m.WaitsForPlugin(test.claim); got != test.waitsForIt {
				t.Errorf("waits for the plugin: %v, want %v", got, test.waitsForIt)
			}
		})
	}
	var none Migration
	if none.WaitsForPlugin(claim(cinderPlugin, "")) || none.Wants(claim(cinderPlugin, ""), "nfs.example") || !none.Wants(claim("nfs.example", ""), "nfs.example") {
		t.Error("a driver that has taken over nothing minds others' claims")
	}
}

func TestMigratedClass(t *testing.T) {
	m := NewMigration(cinderDriver)
	class := &storagev1.StorageClass{
		Provisioner:       cinderPlugin,
		Parameters:        map[string]string{"fsType": "xfs", "type": "ssd"},
		AllowedTopologies: []corev1.TopologySelectorTerm{allowed(corev1.LabelTopologyZone, "a")},
	}
	got, migrated, err := m.Class(klog.Background(), class)
	if err != nil || !migrated {
		t.Fatal(migrated, err)
	}
	if got.Parameters[fsTypeKey] != "xfs" || got.Parameters["type"] != "ssd" || len(got.Parameters) != 2 ||
		got.AllowedTopologies[0].MatchLabelExpressions[0].Key != "topology.cinder.csi.openstack.org/zone" || got.Provisioner != cinderPlugin {
		t.Errorf("translated to %v", got)
	}
	if class.Parameters["fsType"] != "xfs" {
		t.Error("the class itself was changed")
	}
	portworx := &storagev1.StorageClass{Provisioner: "kubernetes.io/portworx-volume"}
	if got, _, err := NewMigration("pxd.portworx.com").Class(klog.Background(), portworx); err != nil || got.Provisioner != portworx.Provisioner {
		t.Errorf("the class is of %s, %v", got.Provisioner, err)
	}
	own := &storagev1.StorageClass{Provisioner: cinderDriver}
	if got, migrated, err := m.Class(klog.Background(), own); got != own || migrated || err != nil {
		t.Errorf("the driver's own class became %v, %v, %v", got, migrated, err)
	}
	if got, migrated, err := (Migration{}).Class(klog.Background(), class); got != class || migrated || err != nil {
		t.Errorf("without migration a class became %v, %v, %v", got, migrated, err)
	}
	// A parameter that the driver no longer supports.
	class = &storagev1.StorageClass{
		Provisioner: "kubernetes.io/gce-pd", Parameters: map[string]string{"zone": "a"},
		AllowedTopologies: []corev1.TopologySelectorTerm{allowed(corev1.LabelTopologyZone, "a")},
	}
	if _, _, err := NewMigration("pd.csi.storage.gke.io").Class(klog.Background(), class); !errors.Is(err, ErrClass) {
		t.Errorf("a class that cannot be translated: %v", err)
	}
}

func TestMigratedVolume(t *testing.T) {
	m := NewMigration(cinderDriver)
	creation, err := NewCreation(testOptions(), testClaim(), testClass(nil), "pvc-1")
	if err != nil {
		t.Fatal(err)
	}
	creation.Template.Spec.CSI.Driver = cinderDriver
	creation.Template.Spec.CSI.VolumeHandle = "id-1"
	if got, err := m.Saved(creation, creation.Template); got != creation.Template || err != nil {
		t.Errorf("of a class of the driver: %v, %v", got, err)
	}
	creation.Migrated = true
	data, topologies, err := creation.Store()
	if err != nil {
		t.Fatal(err)
	}
	if creation, err = RestoreCreation(data, topologies); err != nil || !creation.Migrated {
		t.Fatal("the journal forgets it", err)
	}
	saved, err := m.Saved(creation, creation.Template)
	if err != nil || saved.Spec.CSI != nil || saved.Spec.Cinder == nil || saved.Spec.Cinder.VolumeID != "id-1" || saved.Spec.ClaimRef.UID != testClaim().UID {
		t.Fatal(saved, err)
	}
	back, err := m.Volume(klog.Background(), saved)
	if err != nil || back.Spec.CSI == nil || back.Spec.CSI.VolumeHandle != "id-1" || back.Spec.CSI.Driver != cinderDriver {
		t.Error(back, err)
	}
	if _, err := (Migration{}).Saved(creation, creation.Template); !errors.Is(err, ErrVolume) {
		t.Errorf("of a driver that has not taken it over: %v", err)
	}
}

func TestSameVolume(t *testing.T) {
	m := NewMigration(cinderDriver)
	gce := NewMigration("pd.csi.storage.gke.io")
	disk := &corev1.PersistentVolume{}
	disk.Labels = map[string]string{corev1.LabelTopologyZone: "us-east1-b"}
	disk.Spec.GCEPersistentDisk = &corev1.GCEPersistentDiskVolumeSource{PDName: "d", FSType: "ext4"}
	tests := map[string]struct {
		migration Migration
		volume    *corev1.PersistentVolume
		driver    string
		handle    string
		want      bool
	}{
		"CSI":                            {m, savedVolume("", cinderDriver, "a"), cinderDriver, "a", true},
		"CSI, another handle":            {m, savedVolume("", cinderDriver, "b"), cinderDriver, "a", false},
		"CSI, another driver":            {m, savedVolume("", "other", "a"), cinderDriver, "a", false},
		"the plugin's":                   {m, cinderVolume("a"), cinderDriver, "a", true},
		"the plugin's, another handle":   {m, cinderVolume("b"), cinderDriver, "a", false},
		"another plugin's":               {m, disk, cinderDriver, "a", false},
		"of no plugin":                   {m, &corev1.PersistentVolume{}, cinderDriver, "a", false},
		"nothing is taken over":          {Migration{}, cinderVolume("a"), "nfs.example", "a", false},
		"nothing is taken over, CSI":     {Migration{}, savedVolume("", "nfs.example", "a"), "nfs.example", "a", true},
		"a project the plugin lacks":     {gce, disk, "pd.csi.storage.gke.io", "projects/p/zones/z/disks/d", true},
		"a project, and another disk":    {gce, disk, "pd.csi.storage.gke.io", "projects/p/zones/z/disks/e", false},
		"a handle that is not of a disk": {gce, disk, "pd.csi.storage.gke.io", "e", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.migration.Same(klog.Background(), test.volume, test.driver, test.handle); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestMayDelete(t *testing.T) {
	now := metav1.Now()
	going := func(volume *corev1.PersistentVolume) { volume.DeletionTimestamp = &now }
	tests := map[string]struct {
		volume *corev1.PersistentVolume
		want   bool
	}{
		"CSI":                     {savedVolume("", cinderDriver, "a"), true},
		"left to the driver":      {cinderVolume("a", migratedTo(cinderDriver)), true},
		"left to another":         {cinderVolume("a", migratedTo("other")), false},
		"the plugin's":            {cinderVolume("a"), false},
		"the plugin is done":      {cinderVolume("a", going), true},
		"the plugin's, of others": {cinderVolume("a", func(v *corev1.PersistentVolume) { v.Labels = map[string]string{"a": "b"} }), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := NewMigration(cinderDriver).MayDelete(test.volume); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
