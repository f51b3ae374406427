package journal

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// fate is what is known of a key when the process dies: the data that it may have, of
// which the last is the latest, and whether it may be, and must be, there.
type fate struct {
	data      []string
	may, must bool
}

// dying lets some writes through, of which the last has no answer, and then none.
func dying(client *fake.Clientset, writes int32) *atomic.Bool {
	dead := &atomic.Bool{}
	var left atomic.Int32
	left.Store(writes)
	client.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetVerb() == "get" || action.GetVerb() == "list" {
			return false, nil, nil
		}
		switch n := left.Add(-1); {
		case n > 0:
			return false, nil, nil
		case n == 0:
			dead.Store(true)
			object := action.(clienttesting.CreateAction).GetObject()
			if action.GetVerb() == "create" {
				_ = client.Tracker().Create(action.GetResource(), object, "n")
			} else {
				_ = client.Tracker().Update(action.GetResource(), object, "n")
			}
		}
		return true, nil, errors.New("the process is dead")
	})
	return dead
}

// A process that dies between any two writes leaves each entry that it was told about,
// once, and none that it was told is removed.
func TestKilledBetweenWrites(t *testing.T) {
	for seed := range uint64(12) {
		random := rand.New(rand.NewPCG(seed, 1))
		client := fake.NewClientset()
		j := open(t, config(client, shards(3), func(c *Config) { c.TryFor = 20 * time.Millisecond }))
		dead := dying(client, int32(1+random.IntN(25)))
		fates := map[string]*fate{}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { j.Run(ctx) })
		for step := 0; !dead.Load(); step++ {
			randomStep(t, j, random, fates, step)
		}
		cancel()
		running.Wait()
		expectFates(t, client, seed, fates)
	}
}

func randomStep(t *testing.T, j *Journal, random *rand.Rand, fates map[string]*fate, step int) {
	key := fmt.Sprint("pvc-", random.IntN(12))
	known := fates[key]
	data := func() string {
		return fmt.Sprintf(`{"step":%d,"filler":%s}`, step, incompressible(t, 2000+random.IntN(20<<10)).Data)
	}
	switch {
	case j.Data(key) == nil:
		if known == nil {
			known = &fate{}
			fates[key] = known
		}
		known.data, known.may = append(known.data, data()), true
		recorded, err := j.Begin(t.Context(), key, Entry{Data: []byte(known.data[len(known.data)-1])})
		if recorded && err == nil {
			*known = fate{data: known.data[len(known.data)-1:], may: true, must: true}
		}
	case random.IntN(3) == 0:
		known.data = append(known.data, data())
		if err := j.Amend(t.Context(), key, []byte(known.data[len(known.data)-1])); err == nil && known.must {
			known.data = known.data[len(known.data)-1:]
		}
	case random.IntN(2) == 0:
		known.must = false
		j.End(key)
	default:
		known.must = false
		if err := j.Remove(t.Context(), key); err == nil {
			*known = fate{}
		}
	}
}

func expectFates(t *testing.T, client *fake.Clientset, seed uint64, fates map[string]*fate) {
	t.Helper()
	found := map[string]string{}
	for _, object := range contentOf(t, client) {
		entries, err := decode(object.BinaryData)
		if err != nil {
			t.Fatal(err)
		}
		for key, entry := range entries {
			if _, twice := found[key]; twice {
				t.Errorf("seed %d: %s is there twice", seed, key)
			}
			found[key] = string(entry.Data)
		}
	}
	for key, want := range fates {
		got, there := found[key]
		if want.must && !there || there && !want.may {
			t.Errorf("seed %d: %s is there: %t, must be %t, may be %t", seed, key, there, want.must, want.may)
		}
		if there && !slices.Contains(want.data, got) {
			t.Errorf("seed %d: %s is %.40s, none of %d", seed, key, got, len(want.data))
		}
	}
}
