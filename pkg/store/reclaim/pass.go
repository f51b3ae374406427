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
	cfg      Config
	session  *session.Session
	queue    *queue
	wakeup   wakeup
	backlogs *backlogs
	pace     *pace
	unmoved  []string // abandoned trees in tmp, for which the trash had no space
	removed  int64
}

// run removes what is in the trash, and what dead processes left in tmp, until nothing
// is left or all of it is due later.
func (p *pass) run(ctx context.Context, x *session.Session) error {
	if x.Cat == nil { // nothing was ever deleted here
		return nil
	}
	p.session = x
	unmoved, err := endAbandoned(ctx, x, p.cfg.AbandonedAfter)
	p.unmoved = unmoved
	return errors.Join(err, p.serveAll(ctx))
}

func (p *pass) serveAll(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := p.serveFresh(ctx); err != nil {
			return err
		}
		p.cfg.Upkeep(ctx, p.session, p.wakeup.pending)
		e := p.queue.next(time.Now())
		if e == nil {
			return nil
		}
		if err := p.serve(ctx, e); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// serveFresh gives new trees their first slices.
func (p *pass) serveFresh(ctx context.Context) error {
	q := p.queue
	for {
		if err := p.scan(); err != nil {
			return err
		}
		found := len(q.fresh)
		for e := q.nextFresh(); e != nil; e = q.nextFresh() {
			if err := p.serve(ctx, e); err != nil {
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
	p.wakeup.consume() // it announced what is found now
	var found int64
	add := func(dir string, names []string) {
		for _, name := range names {
			p.queue.add(path.Join(dir, name))
		}
		found += int64(len(names))
	}
	add("", p.unmoved)
	err := list(p.session.Cat.Meta(), catalog.TrashDir, func(names []string) { add(catalog.TrashDir, names) })
	p.update(func(b *Backlog) { b.Trees = found })
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
func (p *pass) serve(ctx context.Context, e *trashEntry) error {
	parent, err := p.parent(e)
	if err != nil {
		return err
	}
	s := p.newSlice(ctx, e)
	defer s.alarm.Stop()
	removed, err := tree.Removal{
		Workers: p.cfg.Workers,
		Before: func(ctx context.Context, changes int64) error {
			if err := p.pace.wait(ctx); err != nil {
				return err
			}
			return s.before(ctx, changes)
		},
		Found: func(n int64) { p.update(func(b *Backlog) { b.Entries += n }) },
	}.Remove(ctx, parent, path.Base(e.name))
	p.removed += removed
	p.update(func(b *Backlog) {
		b.Removed += removed
		if err == nil {
			b.Trees--
		}
	})
	late, failed := classify(ctx, err)
	if err == nil {
		p.queue.done(e)
	} else if p.queue.requeue(e, time.Now(), s.progress.Load(), late, leftOf(e, err)) {
		p.logLate(ctx, e)
	}
	p.countLate()
	return failed
}

func (p *pass) newSlice(ctx context.Context, e *trashEntry) *slice {
	s := &slice{
		first: e.slices == 0, waiting: p.wakeup.pending,
		serve:  func() error { return p.serveFresh(ctx) },
		extend: func(now time.Time) bool { return p.extend(ctx, now) },
	}
	s.start(e.slice())
	return s
}

func (p *pass) extend(ctx context.Context, now time.Time) bool {
	ok, newlyLate := p.queue.extend(now)
	if newlyLate {
		p.logLate(ctx, p.queue.current)
		p.countLate()
	}
	return ok
}

func (p *pass) countLate() {
	late := p.queue.countLate()
	p.update(func(b *Backlog) { b.Late = late })
}

func (p *pass) update(change func(*Backlog)) { p.backlogs.update(p.session.Key.Export, change) }

// parent is the directory that holds a tree.
func (p *pass) parent(e *trashEntry) (*os.File, error) {
	if path.Dir(e.name) == catalog.TrashDir {
		return p.session.Cat.Trash()
	}
	dir, _, err := p.session.Cat.Temp("")
	return dir, err
}

// classify returns why a tree is late, if it is, or what is wrong with the whole export.
func classify(ctx context.Context, err error) (late reason, failed error) {
	switch {
	case err == nil, errors.Is(err, errSliceOver):
		return onTime, nil
	case ctx.Err() != nil, errors.Is(err, unix.ESTALE):
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
func (p *pass) logLate(ctx context.Context, e *trashEntry) {
	log := klog.FromContext(ctx).WithValues(logkeys.Export, p.session.Key.Export.String(), logkeys.Directory, path.Join(volume.MetaDir, e.name))
	switch e.late {
	case long:
		log.Info("A deleted volume takes long to remove. From now on it is removed after all others")
	case written:
		log.Info("A deleted volume is still being written to. Its removal continues when the writes end", logkeys.Left, e.why.Error())
	case refused:
		log.Error(e.why, "Failed to remove all of a deleted volume. Remove the rest on the server, or change its owner to the user that the server maps the driver to")
	}
}
