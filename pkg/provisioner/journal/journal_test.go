package journal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

const patience = 20 * time.Second

// run opens a journal on the API server and runs it; stop ends it as SIGTERM does.
func run(t *testing.T, client *fake.Clientset) (j *Journal, stop func()) {
	t.Helper()
	j, err := Open(t.Context(), Config{Client: client.CoreV1().ConfigMaps("n"), Name: "j"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { j.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return j, stop
}

func begin(t *testing.T, j *Journal, key string) {
	t.Helper()
	if err := j.Begin(t.Context(), key, []byte(`{"of":"`+key+`"}`)); err != nil {
		t.Fatal(err)
	}
}

func keys(t *testing.T, client *fake.Clientset) []string {
	t.Helper()
	j, err := Open(t.Context(), Config{Client: client.CoreV1().ConfigMaps("n"), Name: "j"})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(j.Entries()))
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func TestEntriesOutliveTheProcess(t *testing.T) {
	client := fake.NewClientset()
	j, _ := run(t, client)
	begin(t, j, "a")
	begin(t, j, "b")
	// Not stopped: killed.
	if got := keys(t, client); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("written are %v", got)
	}
	next, stop := run(t, client)
	if got := string(next.Entry("a")); got != `{"of":"a"}` {
		t.Errorf("a is %s", got)
	}
	next.End("a")
	eventually(t, "a is taken out", func() bool { return slices.Equal(keys(t, client), []string{"b"}) })
	next.End("b")
	stop()
	if got := keys(t, client); len(got) != 0 {
		t.Errorf("left are %v", got)
	}
}

func TestBeginsShareRequests(t *testing.T) {
	client := fake.NewClientset()
	j, stop := run(t, client)
	var writes atomic.Int32
	client.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetVerb() != "get" {
			writes.Add(1)
			time.Sleep(5 * time.Millisecond) // as an API server takes
		}
		return false, nil, nil
	})
	const entries, workers = 1000, 100
	var group sync.WaitGroup
	for worker := range workers {
		group.Go(func() {
			for i := range entries / workers {
				key := fmt.Sprintf("%d-%d", worker, i)
				begin(t, j, key)
				j.End(key)
			}
		})
	}
	group.Wait()
	stop()
	if got := writes.Load(); got > entries/10 {
		t.Errorf("%d writes for %d entries", got, entries)
	}
	if got := keys(t, client); len(got) != 0 {
		t.Errorf("left are %v", got)
	}
}

func TestFailedWriteFailsTheBegin(t *testing.T) {
	client := fake.NewClientset()
	j, stop := run(t, client)
	begin(t, j, "before")
	failure := errors.New("etcd is full")
	var broken atomic.Bool
	broken.Store(true)
	client.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if broken.Load() {
			return true, nil, failure
		}
		return false, nil, nil
	})
	if err := j.Begin(t.Context(), "a", []byte("{}")); !errors.Is(err, ErrNotWritten) || !errors.Is(err, failure) {
		t.Errorf("Begin() = %v", err)
	}
	if j.Entry("a") != nil || j.Entry("before") == nil {
		t.Errorf("entries are %v", j.Entries())
	}
	broken.Store(false)
	begin(t, j, "a")
	stop()
	if got := keys(t, client); !slices.Equal(got, []string{"a", "before"}) {
		t.Errorf("written are %v", got)
	}
}

// There is no ConfigMap yet.
func TestFailedFirstWrite(t *testing.T) {
	client := fake.NewClientset()
	var broken atomic.Bool
	broken.Store(true)
	client.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if broken.Load() {
			return true, nil, errors.New("connection lost")
		}
		return false, nil, nil
	})
	j, stop := run(t, client)
	if err := j.Begin(t.Context(), "a", []byte("{}")); !errors.Is(err, ErrNotWritten) {
		t.Errorf("Begin() = %v", err)
	}
	broken.Store(false)
	begin(t, j, "b")
	stop()
	if got := keys(t, client); !slices.Equal(got, []string{"b"}) {
		t.Errorf("written are %v", got)
	}
}

// loseAnswer makes the next update succeed and return an error.
func loseAnswer(t *testing.T, client *fake.Clientset) {
	t.Helper()
	var lost atomic.Bool
	client.PrependReactor("update", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if lost.Swap(true) {
			return false, nil, nil
		}
		object := action.(clienttesting.UpdateAction).GetObject()
		if err := client.Tracker().Update(action.GetResource(), object, "n"); err != nil {
			return true, nil, err
		}
		return true, nil, errors.New("connection lost")
	})
}

// A write whose response is lost must not leave an entry that nothing ends.
func TestWriteThatCameThroughAllTheSame(t *testing.T) {
	client := fake.NewClientset()
	j, stop := run(t, client)
	begin(t, j, "before")
	loseAnswer(t, client)
	if err := j.Begin(t.Context(), "a", []byte("{}")); err == nil {
		t.Fatal("Begin() = nil")
	}
	stop()
	if got := keys(t, client); !slices.Equal(got, []string{"before"}) {
		t.Errorf("written are %v", got)
	}
}

// There can be two leaders for a moment.
func TestAnotherProcessWrites(t *testing.T) {
	client := fake.NewClientset()
	conflictOnStale(client)
	first, _ := run(t, client)
	begin(t, first, "a")
	second, _ := run(t, client)
	begin(t, second, "b")
	begin(t, first, "c")
	for _, key := range []string{"a", "b", "c"} {
		if first.Entry(key) == nil {
			t.Errorf("%s is lost to the first", key)
		}
	}
	if got := keys(t, client); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("written are %v", got)
	}
}

// conflictOnStale adds what the fake API server lacks: resource versions.
func conflictOnStale(client *fake.Clientset) {
	var version atomic.Int64
	client.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		writing, ok := action.(clienttesting.CreateAction) // an update has the same methods
		if !ok {
			return false, nil, nil
		}
		object := writing.GetObject().(*corev1.ConfigMap)
		if current := fmt.Sprint(version.Load()); action.GetVerb() == "update" && object.ResourceVersion != current {
			return true, nil, apierrors.NewConflict(corev1.Resource("configmaps"), object.Name, errors.New("modified"))
		}
		object.ResourceVersion = fmt.Sprint(version.Add(1))
		return false, nil, nil
	})
}

func TestJournalDeletedByHand(t *testing.T) {
	client := fake.NewClientset()
	j, _ := run(t, client)
	begin(t, j, "a")
	if err := client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "n", "j"); err != nil {
		t.Fatal(err)
	}
	begin(t, j, "b")
	if got := keys(t, client); !slices.Contains(got, "b") {
		t.Errorf("written are %v", got)
	}
}

// An API server that has just started has not read the permissions yet.
func TestForbiddenForAMoment(t *testing.T) {
	client := fake.NewClientset()
	before, stop := run(t, client)
	begin(t, before, "of-the-process-before")
	stop()
	var forbidden atomic.Bool
	forbidden.Store(true)
	client.PrependReactor("*", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if !forbidden.Load() {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "j", errors.New("not yet"))
	})
	j, err := Open(t.Context(), Config{Client: client.CoreV1().ConfigMaps("n"), Name: "j", ForbiddenPause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { j.Run(ctx) })
	begin(t, j, "a")
	if j.Entry("a") == nil {
		t.Error("the entry is not even known to this process")
	}
	forbidden.Store(false)
	begin(t, j, "b")
	eventually(t, "everything is written", func() bool {
		return slices.Equal(keys(t, client), []string{"a", "b", "of-the-process-before"})
	})
	cancel()
	running.Wait()
	if j.Entry("of-the-process-before") == nil {
		t.Error("what the process before left is not known")
	}
}

func TestBrokenJournalIsAnError(t *testing.T) {
	object := &corev1.ConfigMap{BinaryData: map[string][]byte{dataKey: []byte("no gzip")}}
	object.Namespace, object.Name = "n", "j"
	client := fake.NewClientset(object)
	if _, err := Open(t.Context(), Config{Client: client.CoreV1().ConfigMaps("n"), Name: "j"}); err == nil {
		t.Error("Open() = nil, what was in the making would be forgotten")
	}
}

func TestEndedContextEndsBegin(t *testing.T) {
	j, err := Open(t.Context(), Config{Client: fake.NewClientset().CoreV1().ConfigMaps("n"), Name: "j"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// Nobody runs it.
	if err := j.Begin(ctx, "a", []byte("{}")); !errors.Is(err, context.Canceled) || j.Entry("a") != nil {
		t.Errorf("Begin() = %v, entries %v", err, j.Entries())
	}
}
