package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
)

// retryingSoon tries for a short time, and again soon.
func retryingSoon(c *Config) { c.TryFor, c.RetryAfter = 50*time.Millisecond, 5*time.Millisecond }

// fault makes requests for ConfigMaps fail while it is set.
type fault struct {
	err   error
	set   atomic.Bool
	tries atomic.Int32
}

func (f *fault) on(client *fake.Clientset, verbs ...string) {
	f.set.Store(true)
	for _, verb := range verbs {
		client.PrependReactor(verb, "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			if !f.set.Load() {
				return false, nil, nil
			}
			f.tries.Add(1)
			return true, nil, f.err
		})
	}
}

// beginWithout expects that the entry begins without being recorded.
func beginWithout(t *testing.T, j *Journal, key string) {
	t.Helper()
	if recorded, err := j.Begin(t.Context(), key, entryOf(key)); recorded || err != nil {
		t.Fatalf("Begin() = %t, %v", recorded, err)
	}
	if j.Data(key) == nil {
		t.Errorf("%s is not even known to this process", key)
	}
}

func awaitEvent(t *testing.T, j *Journal, parts ...string) {
	t.Helper()
	select {
	case event := <-j.config.Events.(*record.FakeRecorder).Events:
		for _, part := range parts {
			if !strings.Contains(event, part) {
				t.Errorf("the event is %q, it lacks %q", event, part)
			}
		}
	case <-time.After(patience):
		t.Fatalf("there is no event %v", parts)
	}
}

// Whatever the reason is that a ConfigMap cannot be written: entries begin, somebody gets
// to know, and they are written as soon as that is possible.
func TestEntriesBeginWithoutTheConfigMap(t *testing.T) {
	resource := corev1.Resource("configmaps")
	for name, test := range map[string]struct {
		err   error
		verbs []string
		// repeated: the API server may answer in a moment.
		repeated bool
	}{
		"no permission":           {apierrors.NewForbidden(resource, "j.0", errors.New("no")), []string{"get", "create", "update"}, false},
		"no permission to write":  {apierrors.NewForbidden(resource, "j.0", errors.New("no")), []string{"create", "update"}, false},
		"quota":                   {apierrors.NewForbidden(resource, "j.0", errors.New("exceeded quota: q")), []string{"create"}, false},
		"admission policy":        {apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), "j.0", nil), []string{"create", "update"}, false},
		"too large":               {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), []string{"create"}, false},
		"namespace gone":          {apierrors.NewNotFound(corev1.Resource("namespaces"), "n"), []string{"create"}, false},
		"no answer of a webhook":  {apierrors.NewInternalError(errors.New("failed calling webhook: deadline exceeded")), []string{"create"}, true},
		"too many requests":       {apierrors.NewTooManyRequests("later", 1), []string{"create"}, true},
		"no answer of the server": {errors.New("connection refused"), []string{"create"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			broken := &fault{err: test.err}
			broken.on(client, test.verbs...)
			j, _ := run(t, client, retryingSoon, func(c *Config) { c.TryFor = 600 * time.Millisecond })
			beginWithout(t, j, "a")
			if tries := broken.tries.Load(); test.repeated && tries < 2 {
				t.Errorf("%d tries", tries)
			}
			awaitEvent(t, j, "Warning JournalNotWritten", test.err.Error())
			if !j.Failing() {
				t.Error("the journal is not failing")
			}
			before := time.Now()
			beginWithout(t, j, "b")
			if waited := time.Since(before); waited > 300*time.Millisecond {
				t.Errorf("the next one has waited for %s", waited)
			}
			broken.set.Store(false)
			eventually(t, "both are written", func() bool { return slices.Equal(keys(t, client), []string{"a", "b"}) })
			awaitEvent(t, j, "Normal JournalWritten")
			eventually(t, "it is not failing any more", func() bool { return !j.Failing() })
			begin(t, j, "c")
			if events := j.config.Events.(*record.FakeRecorder).Events; len(events) > 0 {
				t.Errorf("one more event: %s", <-events)
			}
		})
	}
}

// A ConfigMap that cannot be written leaves the others.
func TestOneShardFails(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.CreateAction).GetObject().(*corev1.ConfigMap).Name
		return name == "j.0", nil, apierrors.NewForbidden(corev1.Resource("configmaps"), name, errors.New("not in the Role"))
	})
	j, _ := run(t, client, shards(2))
	beginWithout(t, j, "a")
	begin(t, j, "b")
	if got := keys(t, client, shards(2)); !slices.Equal(got, []string{"b"}) {
		t.Errorf("written are %v", got)
	}
}

// A process that has lost its lease must not take a ConfigMap that does not answer for a
// reason to go on.
func TestNothingBeginsWithoutLease(t *testing.T) {
	client := fake.NewClientset()
	broken := &fault{err: errors.New("connection refused")}
	broken.on(client, "create")
	j, _ := run(t, client, retryingSoon, func(c *Config) { c.Leading = func() bool { return false } })
	for _, key := range []string{"a", "b"} { // the second one does not wait
		if _, err := j.Begin(t.Context(), key, entryOf(key)); !errors.Is(err, ErrNotWritten) || j.Data(key) != nil {
			t.Errorf("Begin() = %v, the entry is %s", err, j.Data(key))
		}
	}
	broken.set.Store(false)
	eventually(t, "it is written again", func() bool { return !j.Failing() })
	begin(t, j, "c")
}

// Another process writes again and again, so it works.
func TestNothingBeginsBesideAnotherWriter(t *testing.T) {
	client := fake.NewClientset()
	j, _ := run(t, client, retryingSoon)
	begin(t, j, "before")
	conflict := &fault{err: apierrors.NewConflict(corev1.Resource("configmaps"), "j.0", errors.New("modified"))}
	conflict.on(client, "update")
	if _, err := j.Begin(t.Context(), "a", entryOf("a")); !errors.Is(err, ErrNotWritten) || !apierrors.IsConflict(err) || j.Data("a") != nil {
		t.Errorf("Begin() = %v", err)
	}
	if j.Failing() {
		t.Error("it is failing, the next one would begin")
	}
	conflict.set.Store(false)
	begin(t, j, "a")
}

// Nothing else begins that would also write the end.
func TestEndIsWrittenAgainWhenThatFailed(t *testing.T) {
	client := fake.NewClientset()
	j, _ := run(t, client)
	begin(t, j, "a")
	var failures atomic.Int32
	client.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failures.Add(1) == 1, nil, errors.New("etcd is full")
	})
	j.End("a")
	eventually(t, "a is taken out after a failure", func() bool { return failures.Load() > 0 && len(keys(t, client)) == 0 })
}

// An entry that could not be removed is still in the ConfigMap after another process has
// written. It has ended nevertheless.
func TestEndThatFailedIsNotForgotten(t *testing.T) {
	client := fake.NewClientset()
	conflictOnStale(client)
	first, _ := run(t, client, retryingSoon)
	begin(t, first, "a")
	begin(t, first, "b")
	second, _ := run(t, client)
	broken, _ := breakUpdates(client)
	broken.Store(true)
	first.End("a")
	if err := first.Remove(t.Context(), "b"); !errors.Is(err, ErrNotWritten) {
		t.Fatalf("Remove() = %v", err)
	}
	broken.Store(false)
	begin(t, second, "c")
	if _, err := first.Begin(t.Context(), "d", entryOf("d")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a is taken out", func() bool { return slices.Equal(keys(t, client), []string{"b", "c", "d"}) })
	if first.Data("a") != nil {
		t.Errorf("this process has %s", first.Data("a"))
	}
}

// What the ConfigMap does not have cannot mislead the next process, so nobody waits for a
// change of it.
func TestChangesOfWhatIsNotWritten(t *testing.T) {
	client := fake.NewClientset()
	j, _ := run(t, client)
	begin(t, j, "written")
	broken, _ := breakUpdates(client)
	broken.Store(true)
	beginWithout(t, j, "a")
	if err := j.Amend(t.Context(), "a", []byte(`{"made":true}`)); err != nil || string(j.Data("a")) != `{"made":true}` {
		t.Errorf("Amend() = %v, the entry is %s", err, j.Data("a"))
	}
	if err := j.Remove(t.Context(), "a"); err != nil || j.Data("a") != nil {
		t.Errorf("Remove() = %v, the entry is %s", err, j.Data("a"))
	}
	if err := j.Remove(t.Context(), "written"); !errors.Is(err, ErrNotWritten) || j.Data("written") == nil {
		t.Errorf("Remove() = %v of an entry that is written", err)
	}
}

// An amendment that failed is not taken for written when it is repeated.
func TestAmendAgain(t *testing.T) {
	client := fake.NewClientset()
	j, _ := run(t, client, retryingSoon)
	begin(t, j, "a")
	broken, _ := breakUpdates(client)
	broken.Store(true)
	for range 2 {
		if err := j.Amend(t.Context(), "a", []byte("{}")); !errors.Is(err, ErrNotWritten) {
			t.Errorf("Amend() = %v", err)
		}
	}
	broken.Store(false)
	eventually(t, "it is written", func() bool { return j.Amend(t.Context(), "a", []byte("{}")) == nil })
	if got := written(t, client, "a"); got != "{}" {
		t.Errorf("written is %s", got)
	}
}

// An entry that begins while the ConfigMap of the same one cannot be read takes its place.
func TestEntryOfAConfigMapThatCouldNotBeRead(t *testing.T) {
	client := fake.NewClientset()
	nodes := topologies(3)
	first := open(t, config(client, shards(2)))
	first.mu.Lock()
	first.dirty(first.add(first.shards[1], "a", placedEntry(1, nodes)).shard)
	first.mu.Unlock()
	first.write(t.Context(), first.shards[1], true)

	broken := &fault{err: apierrors.NewForbidden(corev1.Resource("configmaps"), "j.1", errors.New("not yet"))}
	broken.on(client, "get")
	j, _ := run(t, client, shards(2), retryingSoon)
	want := placedEntry(2, nodes)
	if recorded, err := j.Begin(t.Context(), "a", want); recorded || err != nil {
		t.Fatalf("Begin() = %t, %v", recorded, err)
	}
	broken.set.Store(false)
	eventually(t, "there is one, the new one", func() bool {
		found := 0
		for _, object := range contentOf(t, client) {
			entries, err := decode(object.BinaryData)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range entries {
				found++
				if string(entry.Data) != string(want.Data) || !slices.Equal(entry.Lists["preferred"], want.Lists["preferred"]) {
					return false
				}
			}
		}
		return found == 1
	})
}

// strict refuses requests after the end of their context, as a real client does.
type strict struct{ typedcorev1.ConfigMapInterface }

func (s strict) Update(ctx context.Context, object *corev1.ConfigMap, options metav1.UpdateOptions) (*corev1.ConfigMap, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("update: %w", context.Cause(ctx))
	}
	return s.ConfigMapInterface.Update(ctx, object, options)
}

func TestEndIsWrittenWhenStopping(t *testing.T) {
	client := fake.NewClientset()
	j, stop := run(t, client, func(c *Config) { c.Client = strict{c.Client} })
	begin(t, j, "a")
	j.End("a")
	stop()
	if got := keys(t, client); len(got) != 0 {
		t.Errorf("left are %v", got)
	}
}

// Stopping in the middle of a write is no failure.
func TestStoppedWhileWriting(t *testing.T) {
	client := fake.NewClientset()
	broken := &fault{err: errors.New("connection refused")}
	broken.on(client, "create")
	j, stop := run(t, client, func(c *Config) { c.TryFor = time.Second })
	var beginning sync.WaitGroup
	beginning.Go(func() {
		if _, err := j.Begin(t.Context(), "a", entryOf("a")); err != nil {
			t.Errorf("Begin() = %v", err)
		}
	})
	eventually(t, "it is tried", func() bool { return broken.tries.Load() > 0 })
	broken.set.Store(false)
	stop()
	beginning.Wait()
	if got := keys(t, client); !slices.Equal(got, []string{"a"}) || j.Failing() {
		t.Errorf("written are %v, failing is %t", got, j.Failing())
	}
}

// A damaged ConfigMap is left to whoever looks into it.
func TestDamagedShardIsLeftAlone(t *testing.T) {
	for name, content := range map[string]map[string][]byte{
		"no gzip":             {entriesKey: []byte("no gzip")},
		"element of no table": {entriesKey: packed(t, map[string]stored{"a": {Data: []byte("{}"), Lists: map[string]string{"l": "0-1"}}})},
	} {
		t.Run(name, func(t *testing.T) {
			object := &corev1.ConfigMap{BinaryData: content}
			object.Namespace, object.Name = "n", "j.0"
			client := fake.NewClientset(object)
			j, stop := run(t, client, shards(2), retryingSoon)
			awaitEvent(t, j, "Warning JournalNotWritten", "j.0", "damaged")
			begin(t, j, "b")
			stop()
			left, err := client.CoreV1().ConfigMaps("n").Get(t.Context(), "j.0", metav1.GetOptions{})
			if err != nil || !slices.Equal(left.BinaryData[entriesKey], content[entriesKey]) {
				t.Errorf("left is %v, %v", left, err)
			}
			if !j.Failing() {
				t.Error("the journal is not failing")
			}
		})
	}
}

func packed(t *testing.T, entries map[string]stored) []byte {
	t.Helper()
	p, err := newPacker()
	if err != nil {
		t.Fatal(err)
	}
	data, err := p.entries(entries)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
