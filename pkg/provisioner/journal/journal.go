// Package journal records unfinished work in ConfigMaps, so that the next process finds
// what a dead one left behind. Entries that begin at about the same time share one request
// to the API server. Where the ConfigMaps cannot be written, work goes on without.
//
// It is for short-lived entries, such as calls under way, and not for lasting state.
package journal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

const (
	tryFor     = 10 * time.Second
	retryAfter = 15 * time.Second
	endDelay   = time.Second
)

// ErrNotWritten is wrapped when a change could not be written.
var ErrNotWritten = errors.New("cannot record the volume in the journal")

// Config of a Journal.
type Config struct {
	// Client is for Namespace.
	Client    typedcorev1.ConfigMapInterface
	Namespace string
	// Name of the ConfigMaps, each of which has a number appended to it: NAME.0 and so on.
	// Two processes must not share them, but if they overlap for a moment, no entry is lost.
	Name string
	// Shards is the number of ConfigMaps.
	Shards int
	// Former is the name of the only ConfigMap of earlier versions, and Convert reads the
	// data of one of its entries. With an empty name there is none.
	Former  string
	Convert func(data []byte) (Entry, error)
	// Owner is of the ConfigMaps that are created, nil for none.
	Owner func(context.Context) ([]metav1.OwnerReference, error)
	// Leading reports whether this process may still work without a write that proves it,
	// nil for always.
	Leading func() bool
	// Events are about the ConfigMaps.
	Events record.EventRecorder
	// TryFor bounds for how long a change waits for a write, 10s by default.
	TryFor time.Duration
	// RetryAfter is the delay before the next try after a write that failed, 15s by
	// default.
	RetryAfter time.Duration
	// EndDelay is for how long ended entries may stay written, so that the next Begin
	// writes their removal too, 1s by default.
	EndDelay time.Duration
}

// Entry is what the journal has of a key.
type Entry struct {
	// Data is JSON.
	Data []byte
	// Lists have elements in JSON, which are stored once for many lists.
	Lists map[string][]string
}

// item is an entry of this process.
type item struct {
	shard *shard
	// data is replaced as a whole, never changed.
	data []byte
	// lists refer to the elements of the shard.
	lists map[string]string
	// written is the data that the ConfigMap is known to have, nil for none.
	written []byte
}

// Journal has entries by key.
type Journal struct {
	config Config
	packer packer
	// wake has the writer look for something to write.
	wake chan struct{}

	mu     sync.Mutex
	items  map[string]*item
	shards []*shard
	// current is the shard of new entries.
	current *shard
	former  former
	reports reports
	// nextWrite is the earliest time of the next write.
	nextWrite time.Time
}

// Open reads the existing entries.
func Open(ctx context.Context, config Config) (*Journal, error) {
	packer, err := newPacker()
	if err != nil {
		return nil, err
	}
	config.TryFor = cmp.Or(config.TryFor, tryFor)
	config.RetryAfter = cmp.Or(config.RetryAfter, retryAfter)
	config.EndDelay = cmp.Or(config.EndDelay, endDelay)
	j := &Journal{config: config, packer: packer, wake: make(chan struct{}, 1), items: map[string]*item{}}
	for i := range config.Shards {
		j.shards = append(j.shards, newShard(fmt.Sprintf("%s.%d", config.Name, i)))
	}
	j.current = j.shards[0]
	for _, s := range j.shards {
		if err := j.open(ctx, s); err != nil {
			return nil, err
		}
	}
	if err := j.openFormer(ctx); err != nil {
		return nil, err
	}
	j.current = j.choose()
	return j, nil
}

// Entries returns the data of the entries that have begun and not ended.
func (j *Journal) Entries() map[string][]byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := make(map[string][]byte, len(j.items))
	for key, item := range j.items {
		all[key] = item.data
	}
	return all
}

// Data returns the data of an entry, nil for none.
func (j *Journal) Data(key string) []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	if item := j.items[key]; item != nil {
		return item.data
	}
	return nil
}

// Entry returns the whole entry of a key, the zero Entry for none.
func (j *Journal) Entry(key string) (Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	item := j.items[key]
	if item == nil {
		return Entry{}, nil
	}
	return restore(item.shard.table.elements, stored{Data: item.data, Lists: item.lists})
}

// Begin returns when the entry is written, or when it cannot be: recorded is false then,
// the entry has begun, and is written once that is possible. An entry that has begun
// already is not changed. On an error, which wraps ErrNotWritten, the entry has not begun.
func (j *Journal) Begin(ctx context.Context, key string, entry Entry) (recorded bool, err error) {
	if !json.Valid(entry.Data) {
		return false, fmt.Errorf("%w: the entry %s is not JSON", ErrNotWritten, key)
	}
	j.mu.Lock()
	if j.items[key] != nil {
		j.mu.Unlock()
		return true, nil
	}
	s := j.shardOf(key)
	j.add(s, key, entry)
	err = j.written(ctx, s)
	if errors.Is(err, errCannot) && ctx.Err() == nil && j.leading() {
		return false, nil
	}
	if err != nil {
		j.End(key)
		return false, notWritten(err)
	}
	return true, nil
}

// Amend replaces the data of an entry that has begun, and returns when it is written. On
// an error, which wraps ErrNotWritten, the new data applies and is written later.
func (j *Journal) Amend(ctx context.Context, key string, data []byte) error {
	if !json.Valid(data) {
		return fmt.Errorf("%w: the entry %s is not JSON", ErrNotWritten, key)
	}
	j.mu.Lock()
	item := j.items[key]
	if item == nil || bytes.Equal(item.data, data) && bytes.Equal(item.written, data) {
		j.mu.Unlock()
		return nil
	}
	item.data = data
	return j.changed(ctx, item.shard, key)
}

// Remove ends an entry, and returns when it is removed from the ConfigMap. On an error,
// which wraps ErrNotWritten, the entry has not ended.
func (j *Journal) Remove(ctx context.Context, key string) error {
	j.mu.Lock()
	item := j.items[key]
	if item == nil {
		j.mu.Unlock()
		return nil
	}
	delete(j.items, key)
	err := j.changed(ctx, item.shard, key)
	if err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.items[key] == nil {
			j.items[key] = item
			j.dirty(item.shard)
		}
	}
	return err
}

// End ends an entry, which is removed from the ConfigMap a moment later.
func (j *Journal) End(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if item := j.items[key]; item != nil {
		delete(j.items, key)
		j.dirty(item.shard)
	}
}

// Failing reports whether a ConfigMap cannot be read or written.
func (j *Journal) Failing() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failing()
}

func (j *Journal) failing() bool {
	return slices.ContainsFunc(j.shards, func(s *shard) bool { return s.failure != nil })
}

// changed waits until a change of an entry is written. What the ConfigMap does not have
// cannot mislead the next process.
func (j *Journal) changed(ctx context.Context, s *shard, key string) error {
	_, present := s.present[key]
	err := j.written(ctx, s)
	if err != nil && (present || !errors.Is(err, errCannot)) {
		return notWritten(err)
	}
	return nil
}

// written waits until the entries of a shard are written. It is called with the lock, and
// releases it.
func (j *Journal) written(ctx context.Context, s *shard) error {
	j.dirty(s)
	if failure := s.failure; failure != nil {
		j.mu.Unlock()
		return failure
	}
	done := make(chan error, 1)
	s.waiting = append(s.waiting, done)
	j.mu.Unlock()
	signal(j.wake)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// dirty has a shard written soon.
func (j *Journal) dirty(s *shard) {
	if s.dirty.IsZero() {
		s.dirty = time.Now()
		signal(j.wake)
	}
}

func (j *Journal) leading() bool { return j.config.Leading == nil || j.config.Leading() }

func notWritten(err error) error { return fmt.Errorf("%w: %w", ErrNotWritten, err) }

func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// reference is for events about a ConfigMap.
func (j *Journal) reference(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: j.config.Namespace, Name: name}
}
