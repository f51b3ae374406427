package sanity

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// modifications counts the calls that carried mutable parameters and succeeded: the
// specs of csi-sanity also pass with none.
type modifications struct{ created, modified atomic.Int64 }

func (m *modifications) intercept(ctx context.Context, method string, req, reply any,
	conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	if r, ok := req.(interface{ GetMutableParameters() map[string]string }); err != nil || !ok || len(r.GetMutableParameters()) == 0 {
		return err
	}
	switch req.(type) {
	case *csi.CreateVolumeRequest:
		m.created.Add(1)
	case *csi.ControllerModifyVolumeRequest:
		m.modified.Add(1)
	}
	return nil
}

func (m *modifications) mustBeSome(t *testing.T, subject string) {
	t.Helper()
	if created, modified := m.created.Load(), m.modified.Load(); created == 0 || modified == 0 {
		t.Errorf("%s: mutable parameters were taken by %d CreateVolume and %d ControllerModifyVolume calls, want some of both",
			subject, created, modified)
	}
}
