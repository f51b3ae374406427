package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// upkeepEvery is how often an export that is worked on is looked through.
const upkeepEvery = time.Hour

// upkeeps are those of exports.
type upkeeps struct {
	mu sync.Mutex
	by map[volume.Export]*upkeep
}

// upkeep of an export: what nobody waits for, and is done once an hour at most.
type upkeep struct {
	begun time.Time
	after string // the note of a retained directory that was looked at last
}

// begin returns the upkeep of an export when it is time for it; nil otherwise.
func (u *upkeeps) begin(export volume.Export, now time.Time) *upkeep {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by == nil {
		u.by = map[volume.Export]*upkeep{}
	}
	at := u.by[export]
	if at == nil {
		at = &upkeep{}
		u.by[export] = at
	} else if now.Sub(at.begun) < upkeepEvery {
		return nil
	}
	at.begun = now
	return at
}

// interrupted makes the upkeep go on at the next opportunity.
func (u *upkeeps) interrupted(at *upkeep) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at.begun = time.Time{}
}

// upkeep of an export, if it is time for it. It gives way when something is waiting.
func (s *Store) upkeep(ctx context.Context, x *session.Session, waiting func() bool) {
	export := x.Key.Export
	at := s.upkeeps.begin(export, time.Now())
	if at == nil {
		return
	}
	err := at.sweepRetained(ctx, x, x.Cat.ServerTime)
	complete, failed := s.inventory.RefreshContents(ctx, x, waiting)
	if !complete && failed == nil {
		s.upkeeps.interrupted(at)
	}
	if err = errors.Join(err, failed); err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Could not look through the records of an export", "export", export.String(), "retryIn", upkeepEvery)
	}
}
