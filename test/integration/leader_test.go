package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	leaseDuration = 3 * time.Second
	retryPeriod   = 500 * time.Millisecond

	// deploy/kubernetes allows any lease of the namespace, and the journal of this driver only.
	leaderDriver = "nfs.csi.internal"
	leaseName    = "nfs-csi-internal"
)

// newLeaderWorld is for tests with leader election. All have one driver name and therefore
// one lease, so they run one after the other.
func newLeaderWorld(t *testing.T) *world {
	t.Helper()
	w := build(t)
	w.driverName = leaderDriver
	w.setUp()
	w.deleteLease()
	t.Cleanup(w.deleteLease)
	return w
}

func (w *world) deleteLease() {
	w.Helper()
	err := w.client.CoordinationV1().Leases(w.account.namespace).Delete(context.Background(), leaseName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.Error(err)
	}
}

func (w *world) startReplica() *replica {
	w.Helper()
	return w.start("--leader-election", "--leader-election-namespace="+w.account.namespace,
		"--leader-election-lease-duration="+leaseDuration.String(),
		"--leader-election-renew-deadline=2s",
		"--leader-election-retry-period="+retryPeriod.String())
}

// holder is empty when nobody holds the lease.
func (w *world) holder() (string, error) {
	lease, err := w.client.CoordinationV1().Leases(w.account.namespace).Get(w.Context(), leaseName, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return "", err
	}
	return *lease.Spec.HolderIdentity, nil
}

// awaitHolder waits for a holder other than this one.
func (w *world) awaitHolder(other string) (holder string) {
	w.Helper()
	w.eventually("somebody else than "+other+" leads", func() (err error) {
		if holder, err = w.holder(); err == nil && (holder == "" || holder == other) {
			err = fmt.Errorf("the holder is %q", holder)
		}
		return err
	})
	return holder
}

func TestStandbyTakesOver(t *testing.T) {
	w := newLeaderWorld(t)
	leader := w.startReplica()
	first := w.awaitHolder("")
	standby := w.startReplica()
	w.createClaim("before")
	w.awaitBound("before")
	for r, want := range map[*replica]string{leader: " 1", standby: " 0"} {
		w.awaitMetrics(r, `leader_election_master_status{name="`+leaseName+`"}`+want)
		if _, err := r.get(t.Context(), "/healthz/leader-election"); err != nil {
			t.Error(err)
		}
	}

	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	w.createClaim("after")
	w.awaitHolder(first)
	w.awaitBound("after")
	// The standby looks every retry period, and up to 1.2 times that.
	if took, limit := time.Since(killed), leaseDuration+2*retryPeriod+4*time.Second; took > limit {
		t.Errorf("the standby finished the claim after %s, want at most %s", took, limit)
	}
	if volumes := w.driver.Volumes(); len(volumes) != 2 {
		t.Errorf("the driver has %d volumes, want 2", len(volumes))
	}
}

func TestSIGTERM(t *testing.T) {
	w := newLeaderWorld(t)
	entered, open := make(chan struct{}, 10), make(chan struct{})
	w.driver.OnCreate(func(ctx context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		entered <- struct{}{}
		select {
		case <-open:
			return next()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	leader := w.startReplica()
	identity := w.awaitHolder("")
	claim := w.createClaim("data")
	select {
	case <-entered:
	case <-time.After(patience):
		t.Fatal("CreateVolume was not called")
	}
	if err := leader.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// Longer than the lease lasts: it is renewed until the call has finished.
	select {
	case <-leader.Exited():
		t.Fatal("it ended with a call under way")
	case <-time.After(leaseDuration + time.Second):
	}
	if holder, err := w.holder(); err != nil || holder != identity {
		t.Errorf("the lease is %q's (%v) with a call under way, want %q's", holder, err, identity)
	}
	close(open)
	if err := w.wait(leader); err != nil {
		t.Errorf("ended with %v", err)
	}
	if holder, err := w.holder(); err != nil || holder != "" {
		t.Errorf("the lease is still %q's (%v)", holder, err)
	}
	if volumes := w.volumes(); len(volumes) != 1 || volumes[0].Name != "pvc-"+string(claim.UID) {
		t.Errorf("volumes are %v, want the one that was under way", volumes)
	}
}

func TestLostLease(t *testing.T) {
	w := newLeaderWorld(t)
	leader := w.startReplica()
	w.awaitHolder("")
	leases := w.client.CoordinationV1().Leases(w.account.namespace)
	w.eventually("the lease is taken away", func() error {
		lease, err := leases.Get(t.Context(), leaseName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		lease.Spec.HolderIdentity = new("thief")
		lease.Spec.LeaseDurationSeconds = new(int32(60))
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		return err
	})
	err := w.wait(leader)
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("ended with %v", err)
	}
	if log := leader.Tail(); !strings.Contains(log, "the leader election lease was lost") {
		t.Errorf("it did not say why it ended: %s", log)
	}
	if holder, err := w.holder(); err != nil || holder != "thief" {
		t.Errorf("the lease is %q's (%v): it gave away what was another's", holder, err)
	}
}
