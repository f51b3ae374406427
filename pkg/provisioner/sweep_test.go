package provisioner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// What a process of another node has just protected must not be taken for what one
// that died has left.
func TestOrphansAreSeenTwiceWhereOthersProtect(t *testing.T) {
	origin := plan.Origin{Kind: plan.ClaimOrigin, Namespace: "team-a", Name: "source"}
	waiting := testClaim("waiting", func(claim *corev1.PersistentVolumeClaim) {
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "source"}
	})
	nothing := func(*protection) {}
	tests := map[string]struct {
		shared  bool
		between func(*protection)
		// want is how many are queued at the first look and at the second.
		want [2]int
	}{
		"nobody else protects": {false, nothing, [2]int{1, 1}},
		"left behind":          {true, nothing, [2]int{0, 1}},
		"a claim waits":        {true, func(p *protection) { _ = p.claims.Add(waiting) }, [2]int{0, 0}},
		"a volume is made":     {true, func(p *protection) { p.claim(origin, "pvc-1") }, [2]int{0, 0}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			claims := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{originIndex: indexOrigin})
			p := newProtection(fake.NewClientset(), sources{}, claims, backOff[plan.Origin](Config{RetryMin: 1, RetryMax: 1}))
			defer p.queue.ShutDown()
			p.shared = test.shared
			var suspects map[plan.Origin]bool
			for i, before := range []func(*protection){nothing, test.between} {
				before(p)
				suspects = p.queueOrphans([]plan.Origin{origin}, suspects)
				if got := p.queue.Len(); got != test.want[i] {
					t.Errorf("look %d: %d in the queue, want %d", i+1, got, test.want[i])
				}
			}
		})
	}
}
