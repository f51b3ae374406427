package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const (
	testLease = "nfs-example"
	patience  = 20 * time.Second
)

func testElection(client *fake.Clientset) *election {
	return newElection(LeaderElectionConfig{
		Enabled:       true,
		Namespace:     "n",
		LeaseDuration: 2 * time.Second,
		RenewDeadline: 500 * time.Millisecond,
		RetryPeriod:   50 * time.Millisecond,
		Release:       true,
	}, client)
}

// The labels are set when the Lease is created and when another replica has created it.
func TestLeaseHasTheLabels(t *testing.T) {
	other := map[string]string{"other": "kept"}
	for name, client := range map[string]*fake.Clientset{
		"new":      fake.NewClientset(),
		"existing": fake.NewClientset(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: testLease, Labels: other}}),
	} {
		t.Run(name, func(t *testing.T) {
			e := testElection(client)
			e.config.Labels = leaseLabels{"team": "storage"}
			if err := e.run(t.Context(), testLease, func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
			lease, err := client.CoordinationV1().Leases("n").Get(t.Context(), testLease, metav1.GetOptions{})
			if err != nil || lease.Labels["team"] != "storage" {
				t.Errorf("the Lease has the labels %v, %v", lease.Labels, err)
			}
			if name == "existing" && lease.Labels["other"] != "kept" {
				t.Errorf("labels of others are gone: %v", lease.Labels)
			}
		})
	}
}

// As in external-provisioner, an event on the Lease tells who leads.
func TestLeaderIsAnnouncedOnTheLease(t *testing.T) {
	client := fake.NewClientset()
	announced := make(chan *corev1.Event, 10)
	client.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(clienttesting.CreateAction)
		if !ok {
			return false, nil, nil
		}
		if event, ok := create.GetObject().(*corev1.Event); ok {
			announced <- event
		}
		return false, nil, nil
	})
	var identity string
	err := testElection(client).run(t.Context(), testLease, func(context.Context) error {
		identity = holder(t, client)
		event := await(t, "the event", announced)
		if about := event.InvolvedObject; about.Kind != "Lease" || about.Name != testLease || event.Namespace != "n" {
			t.Errorf("the event is about %+v", about)
		}
		if event.Reason != "LeaderElection" || event.Message != identity+" became leader" || event.Source.Component != testLease+"/"+identity {
			t.Errorf("the event says %s, %q, from %s", event.Reason, event.Message, event.Source.Component)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	// Its last event, too, has been written.
	select {
	case event := <-announced:
		if event.Message != identity+" stopped leading" {
			t.Errorf("the event at the end says %q", event.Message)
		}
	default:
		t.Error("no event at the end")
	}
}

func TestLeaseLabels(t *testing.T) {
	var labels leaseLabels
	for _, text := range []string{"team:storage,stage:test", "empty:"} {
		if err := labels.Set(text); err != nil {
			t.Fatal(err)
		}
	}
	if got := labels.String(); got != "empty:,stage:test,team:storage" {
		t.Errorf("got %q", got)
	}
}

func holder(t *testing.T, client *fake.Clientset) string {
	t.Helper()
	lease, err := client.CoordinationV1().Leases("n").Get(t.Context(), testLease, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func await[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		t.Fatalf("never came: %s", what)
		panic("unreachable")
	}
}

func TestLeaderFinishesThenGivesTheLeaseBack(t *testing.T) {
	client := fake.NewClientset()
	ctx, stop := context.WithCancel(t.Context())
	working, finish, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- testElection(client).run(ctx, testLease, func(lead context.Context) error {
			close(working)
			<-finish
			return lead.Err()
		})
	}()
	await(t, "leadership", working)
	stop()
	select {
	case err := <-done:
		t.Fatalf("run() = %v with work unfinished", err)
	case <-time.After(300 * time.Millisecond):
	}
	if holder(t, client) == "" {
		t.Error("the lease was released before work was finished")
	}
	close(finish)
	if err := await(t, "the end", done); err != nil {
		t.Errorf("run() = %v after a clean stop", err)
	}
	if identity := holder(t, client); identity != "" {
		t.Errorf("the lease is still %s's", identity)
	}
}

// The feature gate ReleaseLeaderElectionOnExit is off.
func TestLeaseIsKept(t *testing.T) {
	client := fake.NewClientset()
	e := testElection(client)
	e.config.Release = false
	if err := e.run(t.Context(), testLease, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if holder(t, client) == "" {
		t.Error("the lease was released")
	}
}

// Another client has changed the lease since the last renewal.
func TestLeaseIsGivenBackDespiteAConflict(t *testing.T) {
	client := fake.NewClientset()
	var done atomic.Bool
	var conflicts atomic.Int32
	client.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if !done.Load() || conflicts.Add(1) > 2 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), testLease, errors.New("modified"))
	})
	err := testElection(client).run(t.Context(), testLease, func(context.Context) error {
		done.Store(true)
		return nil
	})
	if err != nil || conflicts.Load() < 3 {
		t.Errorf("run() = %v after %d updates of which 2 were to conflict", err, conflicts.Load())
	}
	if identity := holder(t, client); identity != "" {
		t.Errorf("the lease is still %s's", identity)
	}
}

func TestErrorOfWorkIsKept(t *testing.T) {
	failure := errors.New("no")
	err := testElection(fake.NewClientset()).run(t.Context(), testLease, func(context.Context) error { return failure })
	if !errors.Is(err, failure) {
		t.Errorf("run() = %v, want %v", err, failure)
	}
}

// watched is another replica's client of the same API server; tries signals its attempts
// to get the lease.
func watched(client *fake.Clientset) (other *fake.Clientset, tries <-chan struct{}) {
	looked := make(chan struct{}, 1000)
	other = fake.NewClientset()
	other.PrependReactor("*", "*", clienttesting.ObjectReaction(client.Tracker()))
	other.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		looked <- struct{}{}
		return false, nil, nil
	})
	return other, looked
}

func TestOneLeadsAtATimeAndTheNextTakesOver(t *testing.T) {
	client := fake.NewClientset()
	standby, tries := watched(client)
	ctx, stopFirst := context.WithCancel(t.Context())
	var leaders atomic.Int32
	work := func(started chan<- struct{}, until <-chan struct{}) func(context.Context) error {
		return func(context.Context) error {
			if leaders.Add(1) > 1 {
				t.Error("two lead at a time")
			}
			defer leaders.Add(-1)
			close(started)
			<-until
			return nil
		}
	}
	first, second := make(chan struct{}), make(chan struct{})
	firstDone, secondDone := make(chan error, 1), make(chan error, 1)
	go func() { firstDone <- testElection(client).run(ctx, testLease, work(first, ctx.Done())) }()
	await(t, "the first leader", first)
	secondCtx, stopSecond := context.WithCancel(t.Context())
	go func() { secondDone <- testElection(standby).run(secondCtx, testLease, work(second, secondCtx.Done())) }()
	for range 5 {
		await(t, "a try of the second", tries)
	}
	select {
	case <-second:
		t.Error("the second leads beside the first")
	default:
	}
	stopFirst()
	if err := await(t, "the first's end", firstDone); err != nil {
		t.Error(err)
	}
	await(t, "the second leader", second)
	stopSecond()
	if err := await(t, "the second's end", secondDone); err != nil {
		t.Error(err)
	}
}

func TestLostLeaseEndsWork(t *testing.T) {
	client := fake.NewClientset()
	var cut atomic.Bool
	client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		if cut.Load() {
			return true, nil, errors.New("the API server is gone")
		}
		return false, nil, nil
	})
	e := testElection(client)
	var lostAfter time.Duration
	err := e.run(t.Context(), testLease, func(lead context.Context) error {
		cut.Store(true)
		start := time.Now()
		<-lead.Done()
		lostAfter = time.Since(start)
		return lead.Err()
	})
	if !errors.Is(err, errLeaseLost) {
		t.Errorf("run() = %v, want %v", err, errLeaseLost)
	}
	// Another replica takes over after the lease duration at the earliest.
	if lostAfter >= e.config.LeaseDuration {
		t.Errorf("work went on for %s without a lease of %s", lostAfter, e.config.LeaseDuration)
	}
}

func TestWaitingForTheLeaseCanBeStopped(t *testing.T) {
	client := fake.NewClientset()
	ctx, stop := context.WithCancel(t.Context())
	leading, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- testElection(client).run(ctx, testLease, func(context.Context) error {
			close(leading)
			<-ctx.Done()
			return nil
		})
	}()
	await(t, "leadership", leading)
	standbyClient, tries := watched(client)
	standby, stopStandby := context.WithCancel(t.Context())
	standbyDone := make(chan error, 1)
	go func() {
		standbyDone <- testElection(standbyClient).run(standby, testLease, func(context.Context) error {
			t.Error("the standby led")
			return nil
		})
	}()
	await(t, "a try of the standby", tries)
	leader := holder(t, client)
	stopStandby()
	if err := await(t, "the standby's end", standbyDone); err != nil {
		t.Errorf("run() = %v", err)
	}
	if holder(t, client) != leader {
		t.Error("the standby gave another's lease back")
	}
	stop()
	if err := await(t, "the leader's end", done); err != nil {
		t.Errorf("run() = %v", err)
	}
}

func TestLeaseName(t *testing.T) {
	for driver, want := range map[string]string{
		"nfs.csi.internal":    "nfs-csi-internal",
		"example.com/nfs":     "example-com-nfs",
		"ends.with.a.dot.":    "ends-with-a-dot-X",
		"hostpath.csi.k8s.io": "hostpath-csi-k8s-io",
	} {
		if got := leaseName(driver); got != want {
			t.Errorf("leaseName(%q) = %q, want %q", driver, got, want)
		}
	}
}

func TestOwnNamespace(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "from-env")
	if got := ownNamespace(); got != "from-env" {
		t.Errorf("ownNamespace() = %q", got)
	}
}

// A lease that is not renewed counts until it expires, whether or not this process has
// noticed by then.
func TestLeadingUntilTheLeaseExpires(t *testing.T) {
	client := fake.NewClientset()
	e := testElection(client)
	if e.leading() {
		t.Error("it leads before it has the lease")
	}
	err := e.run(t.Context(), testLease, func(lead context.Context) error {
		if !e.leading() {
			t.Error("it has the lease and does not lead")
		}
		client.Lock()
		client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("connection lost")
		})
		client.Unlock()
		<-lead.Done()
		deadline := time.Now().Add(patience)
		for e.leading() {
			if time.Now().After(deadline) {
				t.Error("it leads on with an expired lease")
				return nil
			}
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	})
	if !errors.Is(err, errLeaseLost) {
		t.Errorf("run() = %v", err)
	}
}
