package journal

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
)

// former is the ConfigMap of earlier versions, which had all entries in one value. It is
// deleted when the shards have its entries.
type former struct {
	object *corev1.ConfigMap // nil for none
	keys   []string
	retry  time.Time
}

// openFormer takes over its entries.
func (j *Journal) openFormer(ctx context.Context) error {
	j.former = former{}
	if j.config.Former == "" {
		return nil
	}
	object, err := j.config.Client.Get(ctx, j.config.Former, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		klog.FromContext(ctx).Info("Not permitted to look for the journal of an earlier version", logkeys.ConfigMap, j.config.Former)
		return nil
	case err != nil:
		return fmt.Errorf("read the journal %s of an earlier version: %w", j.config.Former, err)
	}
	var found map[string]json.RawMessage
	if err := unpack(object.BinaryData[entriesKey], &found); err != nil {
		j.complain(ctx, j.config.Former, fmt.Errorf("%w: %w", errUnreadable, err))
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.former.object = object
	for key, data := range found {
		j.former.keys = append(j.former.keys, key)
		if j.items[key] != nil {
			continue
		}
		entry, err := j.config.Convert(data)
		if err != nil {
			entry = Entry{Data: data} // reported by who reads it
		}
		j.dirty(j.add(j.shardOf(key), key, entry).shard)
	}
	return nil
}

// endFormer deletes it, unless it has an entry that no shard has.
func (j *Journal) endFormer(ctx context.Context) {
	object := j.former.object
	if object == nil || time.Now().Before(j.former.retry) || !j.formerWritten() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, j.config.TryFor)
	defer cancel()
	err := j.config.Client.Delete(ctx, object.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion},
	})
	switch {
	case err == nil, apierrors.IsNotFound(err):
		j.former = former{}
		return
	case apierrors.IsConflict(err):
		err = j.openFormer(ctx)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to delete the journal of an earlier version, whose entries are carried over",
			logkeys.ConfigMap, object.Name, logkeys.RetryIn, reportInterval)
		j.former.retry = time.Now().Add(reportInterval)
	}
}

func (j *Journal) formerWritten() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, key := range j.former.keys {
		if item := j.items[key]; item != nil && item.written == nil {
			return false
		}
	}
	return true
}
