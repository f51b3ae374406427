package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// namesAtATime of the trash are read, which has any number.
const namesAtATime = 256

// pass over the trash of an export.
type pass struct {
	r       *reclaimer
	work    *reclaiming
	export  volume.Export
	cat     *catalog.Catalog
	inTmp   []string // what found no room in the trash
	pace    *pace
	upkeep  func()
	removed int64
}

// empty removes what is in the trash, and what dead processes left in tmp, until
// nothing is there or all of it is to be tried later.
func (r *reclaimer) empty(export volume.Export, work *reclaiming) (removed int64, err error) {
	r.mu.Lock()
	options := work.options
	r.mu.Unlock()
	p := &pass{r: r, work: work, export: export, pace: newPace(r.rate)}
	t := session.Target{Key: session.Key{Export: export}, MountOptions: options}
	err = r.exports.Visit(r.ctx, t, func(ctx context.Context, x *session.Session) error {
		if x.Cat == nil { // nothing was ever deleted here
			return nil
		}
		p.cat = x.Cat
		left, failed := endAbandoned(ctx, x, r.abandoned)
		p.upkeep = func() { r.upkeep(ctx, x, work.waiting) }
		return errors.Join(failed, p.run(left))
	})
	return p.removed, err
}

// run gives slices to all that is in the trash and to what found no room there.
func (p *pass) run(inTmp []string) error {
	p.inTmp = inTmp
	for p.r.ctx.Err() == nil {
		if err := p.newcomers(); err != nil {
			return err
		}
		p.upkeep()
		d := p.work.queue.next(time.Now())
		if d == nil {
			return nil
		}
		if err := p.slice(d); err != nil {
			return err
		}
	}
	return p.r.ctx.Err()
}

// newcomers gives what is new in the trash its first slice.
func (p *pass) newcomers() error {
	for {
		if err := p.look(); err != nil {
			return err
		}
		found := len(p.work.queue.fresh)
		for d := p.work.queue.newcomer(); d != nil; d = p.work.queue.newcomer() {
			if err := p.slice(d); err != nil {
				return err
			}
		}
		// There may be more than the queue could take.
		if found == 0 || p.work.queue.full() {
			return nil
		}
	}
}

// look finds what is new in the trash.
func (p *pass) look() error {
	select {
	case <-p.work.wake: // which is for what is found now
	default:
	}
	var found int64
	add := func(dir string, names []string) {
		for _, name := range names {
			p.work.queue.add(path.Join(dir, name))
		}
		found += int64(len(names))
	}
	add("", p.inTmp)
	err := namesIn(p.cat.Meta(), catalog.TrashDir, func(names []string) { add(catalog.TrashDir, names) })
	p.r.count(p.export, func(b *Backlog) { b.Trees = found })
	return err
}

// namesIn lists a directory piece by piece.
func namesIn(root *os.Root, name string, do func([]string)) error {
	dir, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for err == nil {
		var names []string
		names, err = dir.Readdirnames(namesAtATime)
		do(names)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, dir.Close())
}

// slice removes a tree for as long as its slice is. An error is the export's.
func (p *pass) slice(d *discarded) error {
	dir, err := p.holder(d)
	if err != nil {
		return err
	}
	s := p.begin(d)
	defer s.alarm.Stop()
	removed, err := tree.Removal{
		Workers: p.r.workers,
		Before:  s.before,
		Found:   func(n int64) { p.r.count(p.export, func(b *Backlog) { b.Entries += n }) },
	}.Remove(p.r.ctx, dir, path.Base(d.name))
	p.removed += removed
	p.r.count(p.export, func(b *Backlog) {
		b.Removed += removed
		if err == nil {
			b.Trees--
		}
	})
	late, failed := p.judge(err)
	if err == nil {
		p.work.queue.done(d)
	} else if p.work.queue.again(d, time.Now(), s.progress.Load(), late, leftOf(d, err)) {
		p.tell(d)
	}
	p.countLate()
	return failed
}

func (p *pass) countLate() {
	late := p.work.queue.lateOnes()
	p.r.count(p.export, func(b *Backlog) { b.Late = late })
}

// holder is the directory that a tree is in.
func (p *pass) holder(d *discarded) (*os.File, error) {
	if path.Dir(d.name) == catalog.TrashDir {
		return p.cat.Trash()
	}
	dir, _, err := p.cat.Temp("")
	return dir, err
}

// judge tells why a tree is late, if it is, or what is wrong with the whole export.
func (p *pass) judge(err error) (late lateness, failed error) {
	switch {
	case err == nil, errors.Is(err, errSliceOver):
		return onTime, nil
	case p.r.ctx.Err() != nil, errors.Is(err, unix.ESTALE):
		return onTime, err
	case errors.Is(err, tree.ErrWritten):
		return written, nil
	}
	return refused, nil
}

// leftOf is what is left of a tree and why, by its path on the export.
func leftOf(d *discarded, err error) error {
	if left := (*tree.LeftError)(nil); errors.As(err, &left) {
		return fmt.Errorf("%s: %w", path.Join(volume.MetaDir, path.Dir(d.name), left.Path), left.Err)
	}
	return fmt.Errorf("%s: %w", path.Join(volume.MetaDir, d.name), err)
}

// tell the log why a tree is put last.
func (p *pass) tell(d *discarded) {
	log := klog.FromContext(p.r.ctx).WithValues("export", p.export.String(), "directory", path.Join(volume.MetaDir, d.name))
	switch d.late {
	case long:
		log.Info("A deleted volume takes long to remove. It is put last from now on")
	case written:
		log.Info("A deleted volume is still written to. It is removed when that ends", "left", d.why.Error())
	case refused:
		log.Error(d.why, "Could not remove all of a deleted volume. Remove what is left on the server, or give it to the user that the driver is there")
	}
}

// slice of time for one tree.
type slice struct {
	*pass
	first bool      // of the tree
	limit time.Time // of one in which nothing was removed
	// alarm sets rang when the time is over: to ask the clock before every change
	// takes as long as some changes do.
	alarm    *time.Timer
	rang     atomic.Bool
	progress atomic.Bool

	mu sync.Mutex
}

// errSliceOver ends a slice.
var errSliceOver = errors.New("its slice of time is over")

// begin a slice of a tree. Stop its alarm after use.
func (p *pass) begin(d *discarded) *slice {
	length, limit := d.slice()
	s := &slice{pass: p, first: d.slices == 0, limit: time.Now().Add(limit)}
	s.alarm = time.AfterFunc(length, func() { s.rang.Store(true) })
	return s
}

// before is called before every change. It waits for the pace. Where new volumes have
// been deleted meanwhile it holds this one up for their first slices: to begin again
// would mean to list again what is still there. It ends the slice when its time is
// over, unless it is nobody else's turn.
func (s *slice) before(ctx context.Context, changes int64) error {
	if err := s.pace.wait(ctx); err != nil {
		return err
	}
	if changes > 0 && !s.progress.Load() {
		s.progress.Store(true)
	}
	if !s.rang.Load() && (s.first || !s.work.waiting()) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.first && s.work.waiting() && ctx.Err() == nil {
		if err := s.newcomers(); err != nil {
			return err
		}
	}
	return s.over(time.Now())
}

// over tells whether the slice ends now.
func (s *slice) over(now time.Time) error {
	if !s.rang.Load() || !s.progress.Load() && !now.After(s.limit) {
		return nil
	}
	if s.first {
		return errSliceOver
	}
	ok, news := s.work.queue.goOn(now)
	if !ok {
		return errSliceOver
	}
	s.rang.Store(false)
	s.alarm.Reset(fullSlice)
	if news {
		s.tell(s.work.queue.current)
		s.countLate()
	}
	return nil
}
