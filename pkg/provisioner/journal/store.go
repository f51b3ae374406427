package journal

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
)

// dataKey has all entries: they are similar, and compressed together take a tenth of
// the space.
const dataKey = "volumes.json.gz"

// load adds the entries of the ConfigMap that this process does not know.
func (j *Journal) load(ctx context.Context) error {
	found, err := j.config.Client.Get(ctx, j.config.Name, metav1.GetOptions{})
	var stored map[string][]byte
	switch {
	case apierrors.IsForbidden(err):
		j.pause(ctx, err)
		return nil
	case apierrors.IsNotFound(err):
		found, err = nil, nil
	case err == nil:
		stored, err = decode(found.BinaryData[dataKey])
	}
	if err != nil {
		return fmt.Errorf("read the journal %s: %w", j.config.Name, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	for key, data := range stored {
		// An entry that this process has written and no longer has is ended.
		_, ours := j.written[key]
		if _, known := j.entries[key]; !known && !ours {
			j.entries[key] = data
		}
	}
	j.written, j.object = stored, found
	return nil
}

// write replaces the content of the ConfigMap. If another process has written
// meanwhile, its entries are adopted.
func (j *Journal) write(ctx context.Context, entries map[string][]byte) error {
	for {
		err := j.put(ctx, entries)
		switch {
		case err == nil:
			return nil
		case apierrors.IsForbidden(err):
			j.pause(ctx, err)
			return nil
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
			if err := j.load(ctx); err != nil {
				return err
			}
			entries = j.Entries()
		default:
			j.presumeWritten(entries)
			return err
		}
	}
}

// presumeWritten treats a failed write as successful, so that its entries are not
// mistaken for another process's.
func (j *Journal) presumeWritten(entries map[string][]byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.uncertain = true
	presumed := maps.Clone(entries) // not of written, which is nil before the first write
	maps.Copy(presumed, j.written)
	j.written = presumed
}

func (j *Journal) put(ctx context.Context, entries map[string][]byte) error {
	data, err := j.encode(entries)
	if err != nil {
		return err
	}
	j.mu.Lock()
	object := j.object.DeepCopy()
	j.mu.Unlock()
	if object == nil {
		object = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: j.config.Name},
			BinaryData: map[string][]byte{dataKey: data},
		}
		object, err = j.config.Client.Create(ctx, object, metav1.CreateOptions{})
	} else {
		object.BinaryData = map[string][]byte{dataKey: data}
		object, err = j.config.Client.Update(ctx, object, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.written, j.object, j.uncertain = maps.Clone(entries), object, false
	return nil
}

// pause stops writing for a while.
func (j *Journal) pause(ctx context.Context, err error) {
	klog.FromContext(ctx).Error(err, "Not permitted to write the journal; unfinished volumes of claims that are deleted while this program is down will leak",
		logkeys.ConfigMap, j.config.Name, logkeys.RetryIn, j.config.ForbiddenPause)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.forbidden = time.Now().Add(j.config.ForbiddenPause)
	j.uncertain = true // another process may have entries
	time.AfterFunc(j.config.ForbiddenPause, func() { signal(j.ended) })
}

// encode must not be called concurrently.
func (j *Journal) encode(entries map[string][]byte) ([]byte, error) {
	raw := make(map[string]json.RawMessage, len(entries))
	for key, data := range entries {
		raw[key] = data
	}
	var out bytes.Buffer
	j.zip.Reset(&out)
	if err := json.NewEncoder(j.zip).Encode(raw); err != nil {
		return nil, err
	}
	if err := j.zip.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func decode(data []byte) (map[string][]byte, error) {
	entries := map[string][]byte{}
	if len(data) == 0 {
		return entries, nil
	}
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	var raw map[string]json.RawMessage
	if err := json.NewDecoder(zip).Decode(&raw); err != nil {
		return nil, err
	}
	for key, data := range raw {
		entries[key] = data
	}
	return entries, nil
}
