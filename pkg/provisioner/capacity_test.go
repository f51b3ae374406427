package provisioner

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/volumes"
)

// The publisher of capacities learns of what is created, deleted and refused.
func TestCapacityChanges(t *testing.T) {
	changes := make(chan string, 100)
	driver := zonedDriver()
	var full atomic.Bool
	driver.OnCreate(func(ctx context.Context, request *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		if full.Load() {
			return nil, status.Error(codes.ResourceExhausted, "full")
		}
		return inPreferred(ctx, request, next)
	})
	w := newWorldOf(t, driver, func(config *Config) {
		config.Topology = volumes.Topology{Enabled: true}
		config.CapacityChanged = func(class string, affinity *corev1.VolumeNodeAffinity) {
			changes <- fmt.Sprintf("%s, a: %t, b: %t", class, plan.Segment{"zone": "a"}.Reaches(affinity), plan.Segment{"zone": "b"}.Reaches(affinity))
		}
	}, testClass(nil), node("node-a", "a"), node("node-b", "b"), csiNode("node-a", "zone"), csiNode("node-b", "zone"))
	next := func(what, want string) {
		t.Helper()
		var got string
		eventually(t, what, func() bool {
			select {
			case got = <-changes:
				return got == want
			default:
				return false
			}
		})
	}
	w.createClaim(testClaim("data", onNode("node-a")))
	next("a volume is created", "fast, a: true, b: false")
	full.Store(true)
	w.createClaim(testClaim("refused", onNode("node-b")))
	next("a volume is refused", "fast, a: false, b: false")
	w.deleteClaim("refused")
	released := releasedVolume("elsewhere", func(volume *corev1.PersistentVolume) {
		volume.Spec.NodeAffinity = plan.NodeAffinity([]*csi.Topology{{Segments: map[string]string{"zone": "b"}}})
	})
	if _, err := w.client.CoreV1().PersistentVolumes().Create(t.Context(), released, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	next("a volume is deleted", "fast, a: false, b: true")
}
