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
	"k8s.io/client-go/tools/record"
)

const patience = 20 * time.Second

// config is of a journal with one shard.
func config(client *fake.Clientset, change ...func(*Config)) Config {
	c := Config{
		Client: client.CoreV1().ConfigMaps("n"), Namespace: "n", Name: "j", Shards: 1,
		Events: record.NewFakeRecorder(100),
	}
	for _, apply := range change {
		apply(&c)
	}
	return c
}

func open(t *testing.T, c Config) *Journal {
	t.Helper()
	j, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// run opens a journal on the API server and runs it; stop ends it as SIGTERM does.
func run(t *testing.T, client *fake.Clientset, change ...func(*Config)) (j *Journal, stop func()) {
	t.Helper()
	j = open(t, config(client, change...))
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

func entryOf(key string) Entry { return Entry{Data: []byte(`{"of":"` + key + `"}`)} }

// begin expects that the entry is recorded.
func begin(t *testing.T, j *Journal, key string) {
	t.Helper()
	if recorded, err := j.Begin(t.Context(), key, entryOf(key)); !recorded || err != nil {
		t.Fatalf("Begin() = %t, %v", recorded, err)
	}
}

func keys(t *testing.T, client *fake.Clientset, change ...func(*Config)) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(open(t, config(client, change...)).Entries()))
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
	if got := string(next.Data("a")); got != `{"of":"a"}` {
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

// A write whose response is lost is repeated, and must not leave an entry that nothing
// ends.
func TestWriteThatCameThroughAllTheSame(t *testing.T) {
	client := fake.NewClientset()
	conflictOnStale(client)
	j, stop := run(t, client)
	begin(t, j, "before")
	loseAnswer(t, client)
	begin(t, j, "a")
	j.End("a")
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
		if first.Data(key) == nil {
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
	if err := client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "n", "j.0"); err != nil {
		t.Fatal(err)
	}
	begin(t, j, "b")
	if got := keys(t, client); !slices.Contains(got, "b") {
		t.Errorf("written are %v", got)
	}
}

func TestEndedContextEndsBegin(t *testing.T) {
	j := open(t, config(fake.NewClientset()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// Nobody runs it.
	if _, err := j.Begin(ctx, "a", entryOf("a")); !errors.Is(err, context.Canceled) || j.Data("a") != nil {
		t.Errorf("Begin() = %v, entries %v", err, j.Entries())
	}
}

func TestEntryThatIsNotJSON(t *testing.T) {
	j, _ := run(t, fake.NewClientset())
	if _, err := j.Begin(t.Context(), "a", Entry{Data: []byte("{")}); !errors.Is(err, ErrNotWritten) || j.Data("a") != nil {
		t.Errorf("Begin() = %v", err)
	}
	begin(t, j, "b")
	if err := j.Amend(t.Context(), "b", nil); !errors.Is(err, ErrNotWritten) || j.Data("b") == nil {
		t.Errorf("Amend() = %v", err)
	}
}

func TestBeginOfAnEntryThatHasBegun(t *testing.T) {
	j, _ := run(t, fake.NewClientset())
	begin(t, j, "a")
	if recorded, err := j.Begin(t.Context(), "a", Entry{Data: []byte("{}")}); !recorded || err != nil || string(j.Data("a")) == "{}" {
		t.Errorf("Begin() = %t, %v, and the entry is %s", recorded, err, j.Data("a"))
	}
}
