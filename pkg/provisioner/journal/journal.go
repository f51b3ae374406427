// Package journal records unfinished work in a ConfigMap, so that the next process
// finds what a dead one left behind. Entries that begin at about the same time share
// one request to the API server.
//
// It is for few, short-lived entries, such as calls under way, and not for lasting
// state.
package journal

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
)

const (
	// endDelay is how long ended entries may stay written, so that the next Begin
	// removes them at no cost.
	endDelay = 250 * time.Millisecond
	// batchDelay lets a burst of Begins share a request.
	batchDelay = 10 * time.Millisecond

	writeTimeout   = 10 * time.Second
	rewriteDelay   = time.Second
	forbiddenPause = 15 * time.Second
)

// ErrNotWritten is wrapped when an entry could not be written.
var ErrNotWritten = errors.New("cannot record the volume in the journal")

// Config of a Journal.
type Config struct {
	// Client is for the namespace of the ConfigMap.
	Client typedcorev1.ConfigMapInterface
	// Name of the ConfigMap. Two processes must not share it, but if they overlap for a
	// moment, no entry is lost.
	Name string
	// ForbiddenPause is the delay before the next write if permission is missing, 15s by
	// default.
	ForbiddenPause time.Duration
}

// Journal has entries by key.
type Journal struct {
	config Config

	mu      sync.Mutex
	entries map[string][]byte
	// written is the presumed content of the ConfigMap.
	written map[string][]byte
	// object is the ConfigMap, nil if there is none.
	object *corev1.ConfigMap
	// uncertain is set after a failed write, which may have succeeded.
	uncertain bool
	// forbidden is until when not to write, since permission is missing. Only cleanup
	// after a crash needs the entries. An API server that has just started has no
	// permissions for a moment.
	forbidden time.Time
	waiting   []chan error
	kick      chan struct{}
	ended     chan struct{}
	// zip is reused, since it needs more memory than its input.
	zip *gzip.Writer
}

// Open reads the existing entries.
func Open(ctx context.Context, config Config) (*Journal, error) {
	zip, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	j := &Journal{
		config:  config,
		entries: map[string][]byte{},
		kick:    make(chan struct{}, 1),
		ended:   make(chan struct{}, 1),
		zip:     zip,
	}
	j.config.ForbiddenPause = cmp.Or(config.ForbiddenPause, forbiddenPause)
	if err := j.load(ctx); err != nil {
		return nil, err
	}
	return j, nil
}

// Entries returns the entries that have begun and not ended.
func (j *Journal) Entries() map[string][]byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.entries)
}

// Entry returns the entry of a key, nil for none.
func (j *Journal) Entry(key string) []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.entries[key]
}

// Begin returns when the entry is written. An entry that has begun already is not
// changed. On an error, which wraps ErrNotWritten, the entry has not begun.
func (j *Journal) Begin(ctx context.Context, key string, data []byte) error {
	err := j.change(ctx, func() bool {
		_, begun := j.entries[key]
		if !begun {
			j.entries[key] = data
		}
		return !begun
	})
	if err != nil {
		j.End(key)
	}
	return err
}

// Amend replaces an entry that has begun, and returns when it is written. On an error,
// which wraps ErrNotWritten, the new entry applies and is written later.
func (j *Journal) Amend(ctx context.Context, key string, data []byte) error {
	return j.change(ctx, func() bool {
		old, begun := j.entries[key]
		if begun {
			j.entries[key] = data
		}
		return begun && !bytes.Equal(old, data)
	})
}

// Remove ends an entry, and returns when it is removed from the ConfigMap. On an error,
// which wraps ErrNotWritten, the entry has not ended.
func (j *Journal) Remove(ctx context.Context, key string) error {
	data := j.Entry(key)
	err := j.change(ctx, func() bool {
		_, begun := j.entries[key]
		delete(j.entries, key)
		return begun
	})
	if err != nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		if _, begun := j.entries[key]; !begun {
			j.entries[key] = data
		}
	}
	return err
}

// change edits the entries and returns when they are written. It returns at once if
// nothing has changed or permission is missing.
func (j *Journal) change(ctx context.Context, edit func() (changed bool)) error {
	j.mu.Lock()
	changed := edit()
	if !changed || time.Now().Before(j.forbidden) {
		j.mu.Unlock()
		return nil
	}
	done := make(chan error, 1)
	j.waiting = append(j.waiting, done)
	signal(j.kick)
	j.mu.Unlock()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotWritten, err)
	}
	return nil
}

// End ends an entry, which is removed from the ConfigMap a moment later.
func (j *Journal) End(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, begun := j.entries[key]; begun {
		delete(j.entries, key)
		signal(j.ended)
	}
}

func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Run writes until ctx ends, and then once more.
func (j *Journal) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			j.flush(context.WithoutCancel(ctx))
			return
		case <-j.kick:
			pause(ctx, batchDelay)
		case <-j.ended:
			select {
			case <-j.kick:
			case <-ctx.Done():
			case <-time.After(endDelay):
			}
		}
		j.flush(ctx)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// flush writes the entries and passes the result to the waiting calls.
func (j *Journal) flush(ctx context.Context) {
	j.mu.Lock()
	waiting := j.waiting
	j.waiting = nil
	entries := maps.Clone(j.entries)
	changed := !time.Now().Before(j.forbidden) && (j.uncertain || !maps.EqualFunc(entries, j.written, bytes.Equal))
	j.mu.Unlock()
	var err error
	if changed {
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		err = j.write(ctx, entries)
		cancel()
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to write the journal", logkeys.ConfigMap, j.config.Name)
		// Retry, also if nothing else changes.
		time.AfterFunc(rewriteDelay, func() { signal(j.ended) })
	}
	for _, done := range waiting {
		done <- err
	}
}
