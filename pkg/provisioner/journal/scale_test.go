package journal

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func shards(n int) func(*Config) { return func(c *Config) { c.Shards = n } }

// topologies are those of nodes, with three keys each.
func topologies(nodes int) []string {
	var all []string
	for i := range nodes {
		all = append(all, fmt.Sprintf(`{"topology.kubernetes.io/region":"eu-central-1","topology.kubernetes.io/zone":"eu-central-1%c","topology.example.com/node":"ip-10-0-%d-%d.eu-central-1.compute.internal"}`, 'a'+i%3, i/256, i%256))
	}
	return all
}

// placedEntry is one of a claim that may go to any node, from one of them on.
func placedEntry(i int, nodes []string) Entry {
	first := i * 7 % len(nodes)
	uid := sha256.Sum256(fmt.Append(nil, i))
	return Entry{
		Data: fmt.Appendf(nil, `{"request":{"name":"pvc-%x","parameters":{"server":"nfs.example.com","share":"/export"}},"volume":{"spec":{"claimRef":{"name":"data-%d","uid":"%x"}}}}`,
			uid[:16], i, uid[:16]),
		Lists: map[string][]string{"requisite": nodes, "preferred": slices.Concat(nodes[first:], nodes[:first])},
	}
}

func contentOf(t *testing.T, client *fake.Clientset) []corev1.ConfigMap {
	t.Helper()
	list, err := client.CoreV1().ConfigMaps("n").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func TestManyEntriesWithManyNodesFit(t *testing.T) {
	client := fake.NewClientset()
	j, _ := run(t, client, shards(4))
	const entries = 500
	nodes := topologies(1000)
	var group sync.WaitGroup
	for worker := range 100 {
		group.Go(func() {
			for i := worker; i < entries; i += 100 {
				if recorded, err := j.Begin(t.Context(), fmt.Sprint(i), placedEntry(i, nodes)); !recorded || err != nil {
					t.Errorf("Begin() = %t, %v", recorded, err)
				}
			}
		})
	}
	group.Wait()
	objects := contentOf(t, client)
	if len(objects) < 2 {
		t.Errorf("%d ConfigMap has all entries", len(objects))
	}
	for _, object := range objects {
		size := len(object.BinaryData[entriesKey]) + len(object.BinaryData[elementsKey])
		t.Logf("%s: %d bytes, of which %d are topologies", object.Name, size, len(object.BinaryData[elementsKey]))
		if size > maxSize/4 {
			t.Errorf("%s has %d bytes", object.Name, size)
		}
	}
	// Killed, not stopped.
	next := open(t, config(client, shards(4)))
	for i := range entries {
		want := placedEntry(i, nodes)
		got, err := next.Entry(fmt.Sprint(i))
		if err != nil || string(got.Data) != string(want.Data) || !maps.EqualFunc(got.Lists, want.Lists, slices.Equal[[]string]) {
			t.Fatalf("entry %d is %s, %v", i, got.Data, err)
		}
	}
}

// incompressible is JSON of about n bytes.
func incompressible(t *testing.T, n int) Entry {
	t.Helper()
	random := make([]byte, n*3/4)
	source := rand.NewChaCha8([32]byte{1})
	if _, err := source.Read(random); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(random)
	if err != nil {
		t.Fatal(err)
	}
	return Entry{Data: data}
}

// Entries are spread over all shards, and one that fits into none begins nevertheless.
func TestEntriesThatDoNotFit(t *testing.T) {
	client := fake.NewClientset()
	j, _ := run(t, client, shards(3))
	for _, key := range []string{"a", "b", "c"} {
		if recorded, err := j.Begin(t.Context(), key, incompressible(t, 400<<10)); !recorded || err != nil {
			t.Fatalf("Begin() = %t, %v", recorded, err)
		}
	}
	if objects := contentOf(t, client); len(objects) != 3 {
		t.Fatalf("there are %d ConfigMaps", len(objects))
	}
	if recorded, err := j.Begin(t.Context(), "d", incompressible(t, 400<<10)); recorded || err != nil {
		t.Fatalf("Begin() = %t, %v", recorded, err)
	}
	awaitEvent(t, j, "Warning JournalNotWritten", "do not fit")
	begin(t, j, "small")
	if err := j.Amend(t.Context(), "a", incompressible(t, 800<<10).Data); err == nil {
		t.Error("Amend() = nil of an entry that does not fit any more")
	}
	j.End("b")
	begin(t, j, "small-too")
	for _, object := range contentOf(t, client) {
		if size := len(object.BinaryData[entriesKey]); size > maxSize {
			t.Errorf("%s has %d bytes", object.Name, size)
		}
	}
	next := open(t, config(client, shards(3)))
	for _, key := range []string{"a", "c", "small", "small-too"} {
		if next.Data(key) == nil {
			t.Errorf("%s is not written", key)
		}
	}
	j.End("a")
	j.End("c")
	eventually(t, "there is room again", func() bool { return slices.Contains(keys(t, client, shards(3)), "d") })
}

// Elements that nothing refers to any more are not kept, and the references of other
// entries stay right.
func TestElementsAreDropped(t *testing.T) {
	client := fake.NewClientset()
	j, _ := run(t, client)
	for i := range 8 {
		nodes := topologies(3000)[i*300 : i*300+600]
		key := fmt.Sprint(i)
		if _, err := j.Begin(t.Context(), key, placedEntry(i, nodes)); err != nil {
			t.Fatal(err)
		}
		if i >= 1 {
			j.End(fmt.Sprint(i - 1))
		}
		for name, journal := range map[string]*Journal{"this process": j, "the next": open(t, config(client))} {
			entry, err := journal.Entry(key)
			if want := placedEntry(i, nodes); err != nil || !maps.EqualFunc(entry.Lists, want.Lists, slices.Equal[[]string]) {
				t.Fatalf("entry %d is not the same to %s: %v", i, name, err)
			}
		}
	}
	j.mu.Lock()
	left := len(j.shards[0].table.elements)
	j.mu.Unlock()
	if left > 2400 {
		t.Errorf("%d elements are left of %d entries", left, len(j.Entries()))
	}
}

// counts counts the writes of ConfigMaps, by name, and how many are made at a time.
type counts struct {
	mu      sync.Mutex
	writes  map[string]int
	current int
	most    int
}

func count(client *fake.Clientset, duration time.Duration) *counts {
	c := &counts{writes: map[string]int{}}
	client.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		writing, ok := action.(clienttesting.CreateAction)
		if !ok {
			return false, nil, nil
		}
		c.mu.Lock()
		c.writes[writing.GetObject().(*corev1.ConfigMap).Name]++
		c.current++
		c.most = max(c.most, c.current)
		c.mu.Unlock()
		time.Sleep(duration)
		c.mu.Lock()
		c.current--
		c.mu.Unlock()
		return false, nil, nil
	})
	return c
}

func (c *counts) sum() (sum int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.writes {
		sum += n
	}
	return sum
}

// Begins share writes, also while the journal is large; ends cost at most a write a
// second.
func TestBeginsShareWrites(t *testing.T) {
	client := fake.NewClientset()
	j, stop := run(t, client, shards(4))
	written := count(client, 5*time.Millisecond) // as an API server takes
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
	if got := written.sum(); got > entries/10 {
		t.Errorf("%d writes for %d entries", got, entries)
	}
	if written.most != 1 {
		t.Errorf("%d writes at a time", written.most)
	}
	if got := keys(t, client, shards(4)); len(got) != 0 {
		t.Errorf("left are %v", got)
	}
}

// Only what has changed is written.
func TestUnchangedShardsAreNotWritten(t *testing.T) {
	client := fake.NewClientset()
	j, _ := run(t, client, shards(2))
	for _, key := range []string{"a", "b"} {
		if recorded, err := j.Begin(t.Context(), key, incompressible(t, 120<<10)); !recorded || err != nil {
			t.Fatalf("Begin() = %t, %v", recorded, err)
		}
	}
	written := count(client, 0)
	j.End("b")
	eventually(t, "b is removed", func() bool { return slices.Equal(keys(t, client, shards(2)), []string{"a"}) })
	if len(written.writes) != 1 || written.writes["j.1"] != 1 {
		t.Errorf("writes are %v", written.writes)
	}
}

// An idle journal writes an entry at once; removing it can wait.
func TestFirstBeginDoesNotWait(t *testing.T) {
	client := fake.NewClientset()
	j, _ := run(t, client)
	begin(t, j, "first")
	time.Sleep(2 * batchDelay)
	began := time.Now()
	begin(t, j, "a")
	if took := time.Since(began); took > endDelay/2 {
		t.Errorf("it took %s", took)
	}
	var ends atomic.Int32
	client.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		ends.Add(1)
		return false, nil, nil
	})
	began = time.Now()
	j.End("a")
	j.End("first")
	eventually(t, "both are removed", func() bool { return len(keys(t, client)) == 0 })
	if took := time.Since(began); took < endDelay*9/10 || ends.Load() != 1 {
		t.Errorf("%d writes, after %s", ends.Load(), took)
	}
}

// An entry that begins again while its end is not written replaces the old one: the next
// process must not find both.
func TestEntryBeginsAgain(t *testing.T) {
	client := fake.NewClientset()
	j, _ := run(t, client, shards(2))
	for _, key := range []string{"filler", "a"} { // in different shards
		if recorded, err := j.Begin(t.Context(), key, incompressible(t, 120<<10)); !recorded || err != nil {
			t.Fatalf("Begin() = %t, %v", recorded, err)
		}
	}
	j.End("filler")
	j.End("a")
	begin(t, j, "a")
	found := 0
	for _, object := range contentOf(t, client) {
		entries, err := decode(object.BinaryData)
		if err != nil {
			t.Fatal(err)
		}
		if _, has := entries["a"]; has {
			found++
		}
	}
	if got := string(open(t, config(client, shards(2))).Data("a")); found != 1 || got != `{"of":"a"}` {
		t.Errorf("%d ConfigMaps have it, as %s", found, got)
	}
}

func BenchmarkBegin(b *testing.B) {
	client := fake.NewClientset()
	c := config(client, shards(4))
	j, err := Open(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	nodes := topologies(1000)
	for i := range 500 {
		j.mu.Lock()
		j.add(j.shards[i%4], fmt.Sprint("in-flight-", i), placedEntry(i, nodes))
		j.mu.Unlock()
	}
	for i := 0; b.Loop(); i++ {
		key := fmt.Sprint(i)
		j.mu.Lock()
		j.add(j.shards[0], key, placedEntry(i, nodes))
		j.dirty(j.shards[0])
		j.mu.Unlock()
		j.write(b.Context(), j.shards[0], true)
		j.End(key)
	}
}
