// Package journal keeps what is about to be made outside the process that makes
// it, in one ConfigMap, so that the next process finds what one that died left
// behind. Entries are written in groups: many that begin at about the same time
// share one request to the API server.
//
// It is for few entries of short life, such as calls under way, and not for state
// that lasts.
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
	// endDelay is how long entries that have ended may stay written, for the
	// next Begin to take them out at no cost.
	endDelay = 250 * time.Millisecond
	// gatherDelay lets a burst of Begins share a request.
	gatherDelay = 10 * time.Millisecond

	writeTimeout   = 10 * time.Second
	rewriteDelay   = time.Second
	forbiddenPause = 15 * time.Second
)

// ErrNotWritten is wrapped when an entry could not be written.
var ErrNotWritten = errors.New("cannot record the volume in the journal")

// Config is what a Journal needs.
type Config struct {
	// Client is of the namespace that the ConfigMap is in.
	Client typedcorev1.ConfigMapInterface
	// Name of the ConfigMap. No two processes may work with it at the same time;
	// if they do for a moment, no entry is lost.
	Name string
	// ForbiddenPause is how long to go on without the ConfigMap before the next try
	// where permission for it is missing, 15s without it.
	ForbiddenPause time.Duration
}

// Journal is the entries, by key.
type Journal struct {
	config Config

	mu      sync.Mutex
	entries map[string][]byte
	// written is what the ConfigMap has, as far as is known.
	written map[string][]byte
	// object is the ConfigMap itself, nil when there is none.
	object *corev1.ConfigMap
	// uncertain is set when a write failed: it may have come through.
	uncertain bool
	// forbidden is until when not to write, for want of permission: everything works
	// then, but for what a crash leaves behind. An API server that has just started
	// knows of no permissions for a moment.
	forbidden time.Time
	waiting   []chan error
	kick      chan struct{}
	ended     chan struct{}
	// zip is kept, as it needs more memory than all that goes through it.
	zip *gzip.Writer
}

// Open reads the entries that are there.
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

// Entries are those that have begun and not ended.
func (j *Journal) Entries() map[string][]byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.entries)
}

// Entry is the one with the key, nil for none.
func (j *Journal) Entry(key string) []byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.entries[key]
}

// Begin returns when the entry is written. An entry that has begun already stays
// as it was. An error wraps ErrNotWritten; the entry then has not begun.
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

// Amend replaces an entry that has begun, and returns when that is written. An error
// wraps ErrNotWritten; this process then goes on with the new one, and writes it later.
func (j *Journal) Amend(ctx context.Context, key string, data []byte) error {
	return j.change(ctx, func() bool {
		old, begun := j.entries[key]
		if begun {
			j.entries[key] = data
		}
		return begun && !bytes.Equal(old, data)
	})
}

// Remove is End, but returns when the entry is out of the ConfigMap. An error wraps
// ErrNotWritten; the entry then has not ended.
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

// change changes the entries and returns when they are written, at once where edit
// says that nothing has changed, or where there is no permission to write.
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

// End forgets an entry; it is taken out of the ConfigMap a moment later.
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
			pause(ctx, gatherDelay)
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

// flush writes the entries there are and tells those who wait how it went.
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
		// What has ended must go, also when nothing begins any more.
		time.AfterFunc(rewriteDelay, func() { signal(j.ended) })
	}
	for _, done := range waiting {
		done <- err
	}
}
