package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// takeoverSlack is how much later than the end of the lease a standby may be. It
// looks every 5 s and up to a fifth more (--leader-election-retry-period), and can
// be as late to see that the leader has renewed the lease, from when it counts, as
// to see that it has not. The rest is for a busy machine.
const takeoverSlack = 2*6*time.Second + 8*time.Second

// TestLeaderKilled: the standby finishes what the leader was asked for.
func TestLeaderKilled(t *testing.T) {
	const claims = 5
	e := newEnv(t)
	e.waitReady()
	class := e.createClass(nil)
	leader := e.leader(time.Now())
	before, err := e.lease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// No new pod may take part in the election.
	e.cordon()

	var made []*corev1.PersistentVolumeClaim
	for range claims {
		made = append(made, e.createClaim(class))
	}
	if err := kill(e.find(leader, provisionerProgram)); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	now := int64(0)
	err = e.client.CoreV1().Pods(driverNamespace).Delete(t.Context(), leader.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil {
		t.Fatal(err)
	}
	e.eventually("the standby leads", func(ctx context.Context) error {
		got, err := e.lease(ctx)
		if err == nil && got.holder == before.holder {
			err = fmt.Errorf("lease is held by %s, renewed at %v", got.holder, got.renewed)
		}
		return err
	})
	if took := time.Since(killed); took > before.duration+takeoverSlack {
		t.Errorf("the standby took over after %v, the lease is %v", took, before.duration)
	}
	if standby := e.leader(killed); standby.UID == leader.UID || !standby.CreationTimestamp.Time.Before(killed) {
		t.Errorf("pod %s leads, which was no standby", standby.Name)
	}

	var volumes []string
	for _, claim := range made {
		e.waitBound(claim)
		volumes = append(volumes, volumeName(claim))
	}
	e.expectExactly(class, volumes...)
	for _, claim := range made {
		e.deleteClaim(claim)
	}
	e.expectExactly(class)
}

// cordon keeps new pods off the nodes until the test ends.
func (e *env) cordon() {
	e.t.Helper()
	nodes, err := e.client.CoreV1().Nodes().List(e.t.Context(), metav1.ListOptions{})
	if err != nil {
		e.t.Fatal(err)
	}
	set := func(ctx context.Context, unschedulable bool) error {
		patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, unschedulable)
		for _, node := range nodes.Items {
			_, err := e.client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			if err != nil {
				return err
			}
		}
		return nil
	}
	e.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := set(ctx, false); err != nil {
			e.t.Errorf("uncordon: %v", err)
		}
	})
	if err := set(e.t.Context(), true); err != nil {
		e.t.Fatal(err)
	}
}

// waitReady waits until all of the driver's pods are as they should be, whatever
// an earlier test has killed.
func (e *env) waitReady() {
	e.t.Helper()
	e.eventually("the driver is ready", func(ctx context.Context) error { return driverReady(ctx, e.client, driverName) })
}

// leader is the pod that holds the lease and has renewed it after since.
func (e *env) leader(since time.Time) *corev1.Pod {
	e.t.Helper()
	var leader *corev1.Pod
	e.eventually("there is a leader", func(ctx context.Context) error {
		lease, err := e.lease(ctx)
		if err != nil {
			return err
		}
		for _, pod := range e.driverPods("controller") {
			if strings.HasPrefix(lease.holder, pod.Name+"_") && lease.renewed.After(since) {
				leader = &pod
				return nil
			}
		}
		return fmt.Errorf("lease is held by %q, renewed at %v", lease.holder, lease.renewed)
	})
	return leader
}

// leaseName is csi-provisioner's; the sidecars have leases of their own.
const leaseName = "nfs-csi-internal"

type lease struct {
	holder   string
	renewed  time.Time
	duration time.Duration
}

func (e *env) lease(ctx context.Context) (lease, error) {
	held, err := e.client.CoordinationV1().Leases(driverNamespace).Get(ctx, leaseName, metav1.GetOptions{})
	if err != nil {
		return lease{}, err
	}
	spec := held.Spec
	if spec.HolderIdentity == nil || spec.RenewTime == nil || spec.LeaseDurationSeconds == nil {
		return lease{}, fmt.Errorf("lease is not held: %+v", spec)
	}
	return lease{
		holder:   *spec.HolderIdentity,
		renewed:  spec.RenewTime.Time,
		duration: time.Duration(*spec.LeaseDurationSeconds) * time.Second,
	}, nil
}
