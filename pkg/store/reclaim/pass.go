package reclaim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/store/session"
	"github.com/nfs-csi/nfs-csi/pkg/tree"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// namesAtATime bounds the memory for listing the trash, which may hold any number.
const namesAtATime = 256

// pass over the trash of an export.
type pass struct {
	*Reclaimer
	worker  *worker
	export  volume.Export
	cat     *catalog.Catalog
	unmoved []string // abandoned trees in tmp, for which the trash had no space
	pace    *pace
	upkeep  func()
	removed int64
}

// empty makes a pass: it removes what is in the trash, and what dead processes left in
// tmp, until nothing is left or all of it is due later.
func (r *Reclaimer) empty(export volume.Export, w *worker) (removed int64, err error) {
	r.mu.Lock()
	options := w.options
	r.mu.Unlock()
	p := &pass{Reclaimer: r, worker: w, export: export, pace: newPace(r.cfg.Rate)}
	t := session.Target{Key: session.Key{Export: export}, MountOptions: options}
	err = r.cfg.Exports.Visit(r.ctx, t, func(ctx context.Context, x *session.Session) error {
		if x.Cat == nil { // nothing was ever deleted here
			return nil
		}
		p.cat = x.Cat
		p.upkeep = func() { r.cfg.Upkeep(ctx, x, w.waiting) }
		unmoved, failed := endAbandoned(ctx, x, r.cfg.AbandonedAfter)
		p.unmoved = unmoved
		return errors.Join(failed, p.serveAll())
	})
	return p.removed, err
}

func (p *pass) serveAll() error {
	for p.ctx.Err() == nil {
		if err := p.serveFresh(); err != nil {
			return err
		}
		p.upkeep()
		e := p.worker.queue.next(time.Now())
		if e == nil {
			return nil
		}
		if err := p.serve(e); err != nil {
			return err
		}
	}
	return p.ctx.Err()
}

// serveFresh gives new trees their first slices.
func (p *pass) serveFresh() error {
	q := &p.worker.queue
	for {
		if err := p.scan(); err != nil {
			return err
		}
		found := len(q.fresh)
		for e := q.nextFresh(); e != nil; e = q.nextFresh() {
			if err := p.serve(e); err != nil {
				return err
			}
		}
		// The trash may hold more than the queue had room for.
		if found == 0 || q.full() {
			return nil
		}
	}
}

// scan enqueues what is new in the trash.
func (p *pass) scan() error {
	select {
	case <-p.worker.wake: // it announced what is found now
	default:
	}
	var found int64
	add := func(dir string, names []string) {
		for _, name := range names {
			p.worker.queue.add(path.Join(dir, name))
		}
		found += int64(len(names))
	}
	add("", p.unmoved)
	err := list(p.cat.Meta(), catalog.TrashDir, func(names []string) { add(catalog.TrashDir, names) })
	p.count(p.export, func(b *Backlog) { b.Trees = found })
	return err
}

// list calls do with the names in a directory, some at a time.
func list(root *os.Root, name string, do func([]string)) error {
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

// serve gives a tree a slice. An error concerns the whole export.
func (p *pass) serve(e *trashEntry) error {
	parent, err := p.parent(e)
	if err != nil {
		return err
	}
	s := p.newSlice(e)
	defer s.alarm.Stop()
	removed, err := tree.Removal{
		Workers: p.cfg.Workers,
		Before: func(ctx context.Context, changes int64) error {
			if err := p.pace.wait(ctx); err != nil {
				return err
			}
			return s.before(ctx, changes)
		},
		Found: func(n int64) { p.count(p.export, func(b *Backlog) { b.Entries += n }) },
	}.Remove(p.ctx, parent, path.Base(e.name))
	p.removed += removed
	p.count(p.export, func(b *Backlog) {
		b.Removed += removed
		if err == nil {
			b.Trees--
		}
	})
	late, failed := p.classify(err)
	if err == nil {
		p.worker.queue.done(e)
	} else if p.worker.queue.requeue(e, time.Now(), s.progress.Load(), late, leftOf(e, err)) {
		p.logLate(e)
	}
	p.countLate()
	return failed
}

func (p *pass) newSlice(e *trashEntry) *slice {
	s := &slice{first: e.slices == 0, waiting: p.worker.waiting, serve: p.serveFresh, extend: p.extend}
	s.start(e.slice())
	return s
}

func (p *pass) extend(now time.Time) bool {
	ok, newlyLate := p.worker.queue.extend(now)
	if newlyLate {
		p.logLate(p.worker.queue.current)
		p.countLate()
	}
	return ok
}

func (p *pass) countLate() {
	late := p.worker.queue.countLate()
	p.count(p.export, func(b *Backlog) { b.Late = late })
}

// parent is the directory that holds a tree.
func (p *pass) parent(e *trashEntry) (*os.File, error) {
	if path.Dir(e.name) == catalog.TrashDir {
		return p.cat.Trash()
	}
	dir, _, err := p.cat.Temp("")
	return dir, err
}

// classify returns why a tree is late, if it is, or what is wrong with the whole export.
func (p *pass) classify(err error) (late reason, failed error) {
	switch {
	case err == nil, errors.Is(err, errSliceOver):
		return onTime, nil
	case p.ctx.Err() != nil, errors.Is(err, unix.ESTALE):
		return onTime, err
	case errors.Is(err, tree.ErrWritten):
		return written, nil
	}
	return refused, nil
}

// leftOf says what is left of a tree, by its path on the export, and why.
func leftOf(e *trashEntry, err error) error {
	if left := (*tree.LeftError)(nil); errors.As(err, &left) {
		return fmt.Errorf("%s: %w", path.Join(volume.MetaDir, path.Dir(e.name), left.Path), left.Err)
	}
	return fmt.Errorf("%s: %w", path.Join(volume.MetaDir, e.name), err)
}

// logLate logs why a tree is late.
func (p *pass) logLate(e *trashEntry) {
	log := klog.FromContext(p.ctx).WithValues(logkeys.Export, p.export.String(), logkeys.Directory, path.Join(volume.MetaDir, e.name))
	switch e.late {
	case long:
		log.Info("A deleted volume takes long to remove. From now on it is removed after all others")
	case written:
		log.Info("A deleted volume is still being written to. Its removal continues when the writes end", logkeys.Left, e.why.Error())
	case refused:
		log.Error(e.why, "Failed to remove all of a deleted volume. Remove the rest on the server, or change its owner to the user that the server maps the driver to")
	}
}
