package journal

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// spreadSize is from which size of a shard new entries go to the smallest one. Below it,
	// one shard has them all, so that one write begins some and ends others.
	spreadSize = 16 << 10
	// maxSize bounds the content of a shard. An object of the API server has room for 1 MiB.
	maxSize = 512 << 10
	// minCompaction is the number of elements that a shard may have without use.
	minCompaction = 1000
)

// shard is one ConfigMap. Everything but name and read belongs to Journal.mu.
type shard struct {
	name string
	// read is set while object is what the API server is known to have. It belongs to the
	// writer: Open, and then Run.
	read bool
	// object is the ConfigMap, nil if there is none.
	object *corev1.ConfigMap
	// present are the keys that the ConfigMap may have.
	present map[string]struct{}
	table   *table
	// compacted is the number of elements that were in use at the last compaction.
	compacted int
	// packed is the compressed table when it had packedElements.
	packed         []byte
	packedElements int
	size           int
	// dirty is since when there is something to write, zero if there is nothing.
	dirty time.Time
	// waiting are the calls that wait for the next write.
	waiting []chan error
	// failure is why the last write failed, and retry the time of the next try.
	failure error
	retry   time.Time
}

func newShard(name string) *shard {
	return &shard{name: name, table: newTable(), present: map[string]struct{}{}}
}

// shardOf returns the shard of a new entry. An entry of its key that has ended and may
// still be written must be replaced.
func (j *Journal) shardOf(key string) *shard {
	for _, s := range j.shards {
		if _, present := s.present[key]; present {
			return s
		}
	}
	j.current = j.choose()
	return j.current
}

// choose prefers the shard whose next write somebody waits for already.
func (j *Journal) choose() *shard {
	if c := j.current; c.failure == nil && (c.size < spreadSize || len(c.waiting) > 0) {
		return c
	}
	best := j.shards[0]
	for _, s := range j.shards[1:] {
		if better := s.failure == nil && best.failure != nil; better || (s.failure == nil) == (best.failure == nil) && s.size < best.size {
			best = s
		}
	}
	return best
}

// add makes an item of an entry.
func (j *Journal) add(s *shard, key string, entry Entry) *item {
	added := &item{shard: s, data: entry.Data, lists: s.refer(entry.Lists)}
	j.items[key] = added
	return added
}

// move has another shard write an item.
func (j *Journal) move(item *item, to *shard) error {
	entry, err := restore(item.shard.table.elements, stored{Lists: item.lists})
	if err != nil {
		return err
	}
	j.dirty(item.shard)
	item.shard, item.lists = to, to.refer(entry.Lists)
	j.dirty(to)
	return nil
}

// refer returns references to the elements of lists, nil for none.
func (s *shard) refer(lists map[string][]string) map[string]string {
	var references map[string]string
	for name, list := range lists {
		if len(list) == 0 {
			continue
		}
		if references == nil {
			references = map[string]string{}
		}
		references[name] = s.table.refer(list)
	}
	return references
}

// compact drops the elements of a shard that no entry refers to.
func (j *Journal) compact(s *shard, items map[string]*item) error {
	if limit := 2*s.compacted + minCompaction; len(items) > 0 && len(s.table.elements) <= limit || len(s.table.elements) == 0 {
		return nil
	}
	compacted := newTable()
	for key, item := range items {
		entry, err := restore(s.table.elements, stored{Lists: item.lists})
		if err != nil {
			return fmt.Errorf("entry %s: %w", key, err)
		}
		for name, list := range entry.Lists {
			item.lists[name] = compacted.refer(list)
		}
	}
	s.table, s.compacted, s.packed, s.packedElements = compacted, len(compacted.elements), nil, 0
	return nil
}

// snapshot is what to write to a shard.
type snapshot struct {
	entries map[string]stored
	// confirmed has only data that the ConfigMap is known to have.
	confirmed map[string]stored
	elements  []string
	packed    []byte
	object    *corev1.ConfigMap
	waiting   []chan error
}

// take takes what is to be written, and the calls that wait for it.
func (j *Journal) take(s *shard) (snapshot, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	items := map[string]*item{}
	for key, item := range j.items {
		if item.shard == s {
			items[key] = item
		}
	}
	if err := j.compact(s, items); err != nil {
		return snapshot{}, err
	}
	taken := snapshot{
		entries: map[string]stored{}, confirmed: map[string]stored{},
		elements: s.table.elements, object: s.object.DeepCopy(), waiting: s.waiting,
	}
	for key, item := range items {
		taken.entries[key] = stored{Lists: item.lists, Data: item.data}
		if item.written != nil {
			taken.confirmed[key] = stored{Lists: item.lists, Data: item.written}
		}
	}
	if len(s.table.elements) == s.packedElements {
		taken.packed = s.packed
	}
	s.waiting, s.dirty = nil, time.Time{}
	return taken, nil
}

// content is what a ConfigMap gets; complete is false if only what it had fits.
func (j *Journal) content(s *shard, taken *snapshot) (content map[string][]byte, complete bool, err error) {
	if taken.packed == nil && len(taken.elements) > 0 {
		if taken.packed, err = j.packer.elements(taken.elements); err != nil {
			return nil, false, err
		}
	}
	entries, err := j.packer.entries(taken.entries)
	size := len(entries) + len(taken.packed)
	j.mu.Lock()
	s.size = size
	j.mu.Unlock()
	if complete = size <= maxSize; !complete && err == nil {
		taken.entries = taken.confirmed
		entries, err = j.packer.entries(taken.entries)
	}
	content = map[string][]byte{entriesKey: entries}
	if len(taken.packed) > 0 {
		content[elementsKey] = taken.packed
	}
	return content, complete, err
}

// settled records a successful write.
func (j *Journal) settled(s *shard, taken snapshot, object *corev1.ConfigMap) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s.object = object
	s.present = map[string]struct{}{}
	for key, entry := range taken.entries {
		s.present[key] = struct{}{}
		if item := j.items[key]; item != nil && item.shard == s {
			item.written = entry.Data
		}
	}
	if len(s.table.elements) == len(taken.elements) {
		s.packed, s.packedElements = taken.packed, len(taken.elements)
	}
}
