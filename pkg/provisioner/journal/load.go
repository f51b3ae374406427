package journal

import (
	"context"
	"errors"
	"fmt"

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
	object, err := j.config.Client.Get(ctx, s.name, metav1.GetOptions{})
	var found map[string]Entry
	switch {
	case apierrors.IsNotFound(err):
		object, err = nil, nil
	case err == nil:
		if found, err = decode(object.BinaryData); err != nil {
			err = fmt.Errorf("%w: %w", errUnreadable, err)
		}
	}
	if err != nil {
		return fmt.Errorf("read the journal %s: %w", s.name, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	present := map[string]struct{}{}
	for key, entry := range found {
		_, ended := s.present[key]
		item := j.items[key]
		if item == nil && !ended {
			item = j.add(s, key, entry)
		}
		if item != nil && item.shard != s && item.written == nil {
			// So that the entry stays in the ConfigMap until a write replaces it.
			if err := j.move(item, s); err != nil {
				return fmt.Errorf("entry %s: %w", key, err)
			}
		}
		if item != nil && item.shard == s {
			item.written = entry.Data
		} else {
			j.dirty(s)
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
