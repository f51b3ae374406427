package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/events"
)

const (
	serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

	// leaseGrace is how long the health check tolerates an expired lease. A leader that
	// notices ends by itself; one that hangs must be restarted.
	leaseGrace = 20 * time.Second
)

var errLeaseLost = errors.New("the leader election lease was lost, another replica may be leading")

// LeaderElectionConfig has the values of the flags of the same names.
type LeaderElectionConfig struct {
	Enabled       bool
	Namespace     string
	LeaseDuration time.Duration
	RenewDeadline time.Duration
	RetryPeriod   time.Duration
	// Release the Lease at the end, so that the next leader need not wait for its expiry.
	Release bool
	// Labels of the Lease.
	Labels leaseLabels
}

func (c LeaderElectionConfig) validate() error {
	if !c.Enabled {
		return nil
	}
	if err := c.Labels.validate(); err != nil {
		return err
	}
	longestRetry := time.Duration(leaderelection.JitterFactor * float64(c.RetryPeriod))
	switch {
	case c.RetryPeriod <= 0:
		return fmt.Errorf("--leader-election-retry-period is %s, must be positive", c.RetryPeriod)
	case c.RenewDeadline <= longestRetry:
		return fmt.Errorf("--leader-election-renew-deadline is %s, must be more than %s, which is %g retry periods",
			c.RenewDeadline, longestRetry, leaderelection.JitterFactor)
	case c.LeaseDuration <= c.RenewDeadline:
		return fmt.Errorf("--leader-election-lease-duration is %s, must be more than the renew deadline %s",
			c.LeaseDuration, c.RenewDeadline)
	}
	return nil
}

// namespace of the Lease and the journal.
func (c LeaderElectionConfig) namespace() string {
	if c.Namespace != "" {
		return c.Namespace
	}
	return ownNamespace()
}

// election is one replica's participation in leader election.
type election struct {
	config LeaderElectionConfig
	client kubernetes.Interface
	health *leaderelection.HealthzAdaptor
	// elector is nil until run.
	elector atomic.Pointer[leaderelection.LeaderElector]
}

func newElection(config LeaderElectionConfig, client kubernetes.Interface) *election {
	return &election{config: config, client: client, health: leaderelection.NewLeaderHealthzAdaptor(leaseGrace)}
}

func (e *election) check(context.Context) error { return e.health.Check(nil) }

// leading reports whether this replica holds a lease that has not expired. A process that
// was suspended may not have noticed the loss yet.
func (e *election) leading() bool {
	elector := e.elector.Load()
	return elector != nil && elector.IsLeader() && elector.Check(0) == nil
}

// run waits for the lease and then runs work, whose context ends when the lease is lost.
// With config.Release, it releases the lease after work has returned. The end of ctx ends
// the wait, but not work, which has to watch ctx itself.
func (e *election) run(ctx context.Context, name string, work func(context.Context) error) error {
	client := events.NewClient(e.client)
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	defer broadcaster.Shutdown()
	defer client.Settle()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(e.config.namespace())})
	lock, err := e.lock(name, broadcaster)
	if err != nil {
		return err
	}
	elect, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	leading := make(chan context.Context, 1)
	// Not ReleaseOnCancel: a leader that cannot reach the API server would first try to
	// release a lease that it has lost, and continue to work meanwhile.
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		Name:          name,
		LeaseDuration: e.config.LeaseDuration,
		RenewDeadline: e.config.RenewDeadline,
		RetryPeriod:   e.config.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(lead context.Context) { leading <- lead },
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				klog.FromContext(ctx).Info("Leader elected", logkeys.Identity, identity, logkeys.Self, identity == lock.Identity())
			},
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	e.health.SetLeaderElection(elector)
	e.elector.Store(elector)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(elect)
	}()

	lost := false
	select {
	case lead := <-leading:
		err = work(lead)
		lost = lead.Err() != nil
	case <-ctx.Done():
	}
	cancel()
	<-ended
	if lost {
		return errLeaseLost
	}
	if e.config.Release {
		e.release(ctx, lock)
	}
	return err
}

// lock records on the Lease, as external-provisioner does, who leads.
func (e *election) lock(name string, broadcaster record.EventBroadcaster) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	// Pods in the host's network share its name, and two leaders with the same identity
	// would not notice each other.
	identity := host + "_" + string(uuid.NewUUID())
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: e.config.namespace(), Name: name},
		Client:    e.client.CoordinationV1(),
		Labels:    e.config.Labels,
		LockConfig: resourcelock.ResourceLockConfig{
			Identity:      identity,
			EventRecorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: name + "/" + identity}),
		},
	}, nil
}

// release lets the next candidate acquire the lease. This replica may hold the lease
// without having led: the signal to stop can arrive just after acquiring it.
func (e *election) release(ctx context.Context, lock resourcelock.Interface) {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.config.RenewDeadline)
	defer cancel()
	for {
		record, _, err := lock.Get(ctx)
		if apierrors.IsNotFound(err) || err == nil && record.HolderIdentity != lock.Identity() {
			return
		}
		if err == nil {
			now := metav1.Now()
			err = lock.Update(ctx, resourcelock.LeaderElectionRecord{
				LeaderTransitions:    record.LeaderTransitions,
				LeaseDurationSeconds: 1,
				RenewTime:            now,
				AcquireTime:          now,
			})
		}
		switch {
		case err == nil:
			logger.Info("Released the lease", logkeys.Lease, lock.Describe())
			return
		case !apierrors.IsConflict(err):
			// It expires by itself.
			logger.Error(err, "Failed to release the lease", logkeys.Lease, lock.Describe())
			return
		}
	}
}

// leaseName is the same as in the external-provisioner, so that the two never work for a
// driver at the same time.
func leaseName(driver string) string {
	name := regexp.MustCompile("[^a-zA-Z0-9-]").ReplaceAllString(driver, "-")
	if strings.HasSuffix(name, "-") {
		name += "X"
	}
	return name
}

func ownNamespace() string {
	if namespace := os.Getenv("POD_NAMESPACE"); namespace != "" {
		return namespace
	}
	if data, err := os.ReadFile(serviceAccountNamespace); err == nil && len(data) > 0 {
		return strings.TrimSpace(string(data))
	}
	return metav1.NamespaceDefault
}
