package volumes

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// entry is one of a claim.
func entry(t *testing.T, claim string) []byte {
	t.Helper()
	template := &corev1.PersistentVolume{}
	template.Name = "pvc-1"
	template.Spec.CSI = &corev1.CSIPersistentVolumeSource{}
	template.Spec.ClaimRef = &corev1.ObjectReference{Name: claim}
	data, _, err := (&plan.Creation{Request: &csi.CreateVolumeRequest{Name: "pvc-1"}, Template: template}).Store()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Between two changes of an entry nothing is decoded.
func TestEntriesAreDecodedWhenTheyChange(t *testing.T) {
	c := &notes{}
	first := entry(t, "data")
	before := c.read("pvc-1", first)
	if before.err != nil || before.creation.Template.Spec.ClaimRef.Name != "data" {
		t.Fatalf("read() = %+v", before)
	}
	if allocations := testing.AllocsPerRun(10, func() { c.read("pvc-1", first) }); allocations > 0 {
		t.Errorf("reading an entry again allocates %g times", allocations)
	}
	if after := c.read("pvc-1", entry(t, "other")); after.err != nil || after.creation.Template.Spec.ClaimRef.Name != "other" {
		t.Errorf("a changed entry is %+v", after)
	}
	broken := []byte(`{"began":"2026-01-02T03:04:05Z"}`)
	if unreadable := c.read("pvc-1", broken); unreadable.err == nil || unreadable.began.IsZero() {
		t.Errorf("an entry of another version is %+v", unreadable)
	}
}
