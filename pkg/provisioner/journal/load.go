package journal

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errUnreadable is wrapped when the content of a ConfigMap is not a journal's.
var errUnreadable = errors.New("it is damaged, or of a later version")

// open loads a shard when this process starts. The API server must answer, since what is
// in the ConfigMap decides what to ask from the driver.
func (j *Journal) open(ctx context.Context, s *shard) error {
	err := j.load(ctx, s)
	if apierrors.IsForbidden(err) || errors.Is(err, errUnreadable) {
		j.failed(ctx, s, err)
		return nil
	}
	return err
}

// load adds the entries of a ConfigMap that this process does not know. An entry that it
// has written and no longer has is ended.
func (j *Journal) load(ctx context.Context, s *shard) error {
	object, found, err := j.fetch(ctx, s.name)
	if err != nil {
		return fmt.Errorf("read the journal %s: %w", s.name, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	present := map[string]struct{}{}
	for key, entry := range found {
		if err := j.merge(s, key, entry); err != nil {
			return fmt.Errorf("entry %s: %w", key, err)
		}
		present[key] = struct{}{}
	}
	for key, item := range j.items {
		if _, kept := found[key]; !kept && item.shard == s {
			item.written = nil
		}
	}
	s.object, s.read, s.present, s.compacted = object, true, present, len(s.table.elements)
	if object != nil {
		s.size = len(object.BinaryData[entriesKey]) + len(object.BinaryData[elementsKey])
	}
	return nil
}

// fetch returns neither a ConfigMap nor an error if there is none.
func (j *Journal) fetch(ctx context.Context, name string) (*corev1.ConfigMap, map[string]Entry, error) {
	object, err := j.config.Client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	found, err := decode(object.BinaryData)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return object, found, nil
}

// merge decides what becomes of an entry that a ConfigMap has.
func (j *Journal) merge(s *shard, key string, entry Entry) error {
	item := j.items[key]
	if _, ended := s.present[key]; item == nil && !ended {
		item = j.add(s, key, entry)
	}
	if item != nil && item.shard != s && item.written == nil {
		// So that the entry stays in the ConfigMap until a write replaces it.
		if err := j.move(item, s); err != nil {
			return err
		}
	}
	if item != nil && item.shard == s {
		item.written = entry.Data
	} else {
		j.dirty(s)
	}
	return nil
}
