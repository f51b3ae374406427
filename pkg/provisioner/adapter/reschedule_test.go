package adapter

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func claimOf(name, version string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, ResourceVersion: version}}
}

func TestOutdatedClaimIsSkipped(t *testing.T) {
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	if err := store.Add(claimOf("data", "6")); err != nil {
		t.Fatal(err)
	}
	r := newRescheduled(store)
	if err := r.Update(claimOf("data", "5")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		claim *corev1.PersistentVolumeClaim
		want  bool
	}{
		{claimOf("data", "5"), true},
		{claimOf("data", "6"), false},
		{claimOf("other", "5"), false},
	} {
		if got := r.skips(test.claim); got != test.want {
			t.Errorf("skips(%s in version %s) = %t, want %t", test.claim.Name, test.claim.ResourceVersion, got, test.want)
		}
	}
	if !r.has("team-a/data", "6") {
		t.Error("the later version was replaced")
	}
}

func TestOutdatedClaimsAreForgotten(t *testing.T) {
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	r := newRescheduled(store)
	for _, name := range []string{"kept", "changed", "deleted"} {
		if err := store.Add(claimOf(name, "5")); err != nil {
			t.Fatal(err)
		}
		if err := r.Update(claimOf(name, "5")); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Update(claimOf("changed", "6")); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(claimOf("deleted", "5")); err != nil {
		t.Fatal(err)
	}
	if err := r.Update(claimOf("last", "7")); err != nil {
		t.Fatal(err)
	}
	if len(r.outdated) != 2 || !r.skips(claimOf("kept", "5")) || !r.skips(claimOf("last", "7")) {
		t.Errorf("skipped are %v", r.outdated)
	}
}

func TestOnlyClaimsAreUpdated(t *testing.T) {
	if err := newRescheduled(cache.NewStore(cache.MetaNamespaceKeyFunc)).Update(&corev1.Pod{}); err == nil {
		t.Error("a pod is taken for a claim")
	}
}
