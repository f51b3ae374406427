package sources

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/workqueue"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/cluster"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// What a process of another node has just protected must not be mistaken for what a
// dead one left behind.
func TestOrphansAreSeenTwiceWhereOthersProtect(t *testing.T) {
	origin := plan.Origin{Kind: plan.ClaimOrigin, Namespace: "team-a", Name: "source"}
	waiting := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "waiting"},
		Spec:       corev1.PersistentVolumeClaimSpec{DataSource: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}},
	}
	nothing := func(*Protection) {}
	tests := map[string]struct {
		shared  bool
		between func(*Protection)
		// want is the length of the queue after the first look and after the second.
		want [2]int
	}{
		"nobody else protects": {false, nothing, [2]int{1, 1}},
		"left behind":          {true, nothing, [2]int{0, 1}},
		"a claim waits":        {true, func(p *Protection) { _ = p.claims.Add(waiting) }, [2]int{0, 0}},
		"a volume is made":     {true, func(p *Protection) { p.Adopt(origin, "pvc-1") }, [2]int{0, 0}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config := cluster.Config{Client: fake.NewClientset()}
			if test.shared {
				config.Node.Name = "node-1"
			}
			p, err := NewProtection(ProtectionConfig{
				Cluster: cluster.New(config), Limiter: workqueue.DefaultTypedControllerRateLimiter[plan.Origin](),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer p.queue.ShutDown()
			var suspects map[plan.Origin]bool
			for i, before := range []func(*Protection){nothing, test.between} {
				before(p)
				suspects = p.queueOrphans([]plan.Origin{origin}, suspects)
				if got := p.queue.Len(); got != test.want[i] {
					t.Errorf("look %d: %d in the queue, want %d", i+1, got, test.want[i])
				}
			}
		})
	}
}
