package store

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// upkeepInterval is how often the records of an export in use are scanned.
const upkeepInterval = time.Hour

// upkeeps by export.
type upkeeps struct {
	mu sync.Mutex
	by map[volume.Export]*upkeep
}

// upkeep of an export is background work, at most once per upkeepInterval.
type upkeep struct {
	started time.Time
	after   string // the retained directory whose note was checked last
}

// begin returns the upkeep of an export, or nil if it is not due.
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
	} else if now.Sub(at.started) < upkeepInterval {
		return nil
	}
	at.started = now
	return at
}

// interrupted makes the upkeep due again at once.
func (u *upkeeps) interrupted(at *upkeep) {
	u.mu.Lock()
	defer u.mu.Unlock()
	at.started = time.Time{}
}

// upkeep runs the upkeep of the session's export if it is due. It stops early when waiting
// returns true.
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
		klog.FromContext(ctx).Error(err, "Failed to scan the records of an export", logkeys.Export, export.String(), logkeys.RetryIn, upkeepInterval)
	}
}
