package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
)

const (
	serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

	// leaseGrace is how long the health check bears a lease that has run out: a
	// leader that noticed ends by itself, one that hangs must be ended.
	leaseGrace = 20 * time.Second
)

var errLeaseLost = errors.New("the leader election lease was lost, another replica may be leading")

// LeaderElectionConfig is the flags' of the same names.
type LeaderElectionConfig struct {
	Enabled       bool
	Namespace     string
	LeaseDuration time.Duration
	RenewDeadline time.Duration
	RetryPeriod   time.Duration
}

func (c LeaderElectionConfig) validate() error {
	longestRetry := time.Duration(leaderelection.JitterFactor * float64(c.RetryPeriod))
	switch {
	case !c.Enabled:
		return nil
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

// namespace is where the Lease is, and the journal.
func (c LeaderElectionConfig) namespace() string {
	if c.Namespace != "" {
		return c.Namespace
	}
	return ownNamespace()
}

// election is one replica's part in choosing the leader.
type election struct {
	config LeaderElectionConfig
	client kubernetes.Interface
	health *leaderelection.HealthzAdaptor
}

func newElection(config LeaderElectionConfig, client kubernetes.Interface) *election {
	return &election{config: config, client: client, health: leaderelection.NewLeaderHealthzAdaptor(leaseGrace)}
}

func (e *election) check(context.Context) error { return e.health.Check(nil) }

// run waits for the lease and then does work, whose context ends when the lease
// is lost. It gives the lease back after work has returned. The end of ctx ends
// the waiting, but not work, which must watch for it by itself.
func (e *election) run(ctx context.Context, name string, work func(context.Context) error) error {
	lock, err := e.lock(name)
	if err != nil {
		return err
	}
	elect, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	leading := make(chan context.Context, 1)
	// Not ReleaseOnCancel: with it, a leader that cannot reach the API server
	// would first try to give back a lease it has lost, and work on meanwhile.
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
				klog.FromContext(ctx).Info("Leader", logkeys.Identity, identity, logkeys.Self, identity == lock.Identity())
			},
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	e.health.SetLeaderElection(elector)
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
	e.release(ctx, lock)
	return err
}

func (e *election) lock(name string) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: e.config.namespace(), Name: name},
		Client:    e.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{
			// Pods with the host's network share its name; two leaders of one
			// identity would not notice each other.
			Identity: host + "_" + string(uuid.NewUUID()),
		},
	}, nil
}

// release gives the lease to whoever asks next. It may be held although nobody
// led: the signal to stop can come just after the lease was got.
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
			logger.Info("Gave the lease back", logkeys.Lease, lock.Describe())
			return
		case !apierrors.IsConflict(err):
			// It runs out by itself.
			logger.Error(err, "Cannot give the lease back", logkeys.Lease, lock.Describe())
			return
		}
	}
}

// leaseName is the one that the external-provisioner uses for the driver, so that
// the two never work at the same time.
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
