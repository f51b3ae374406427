package tree

import (
	"context"
	"errors"
	"io"
	"io/fs"
)

// openLevels is how many nested directories a walk keeps open.
const openLevels = 16

// item is an entry that a walk has reached.
type item struct {
	name  string
	kind  fs.FileMode // as dirent.kind
	tries uint8       // how often its name was looked up again
	// fresh: the target of a copy has no entry of that name.
	fresh bool
}

// visitor is what a walk does with the tree.
type visitor interface {
	// entry processes an entry of the level. It returns an open directory for the walk
	// to descend into.
	entry(ctx context.Context, l *level, e item) (down *level, err error)
	// unreadable is called when the listing fails; nil ends the directory there.
	unreadable(l *level, err error) error
	// leave is called when all entries of the level are done.
	leave(ctx context.Context, l *level) error
	// returned is called after leave, when the level above is open again.
	returned(ctx context.Context, above, l *level) error
	// lost is called when a directory on the path was moved or removed, after everything
	// below it was closed. The frame has the counts of all of that.
	lost(ctx context.Context, above *level, f *frame) error
}

// walker walks a tree depth first with a bounded number of descriptors. It returns to
// a directory that it has closed through "..".
type walker struct {
	visitor visitor
	// open has the first level, which stays open, and the deepest ones.
	open []*level
	// closed has those in between.
	closed frames
	// keepNames has frames keep names, so that a walk whose directories were moved can
	// continue from the first one that is still in place; otherwise that is an error.
	keepNames bool
	// spare has buffers of closed listings.
	spare [][]byte
}

// run walks the tree below the level, which stays open.
func (w *walker) run(ctx context.Context, first *level) error {
	w.open = []*level{first}
	err := w.walk(ctx)
	for i, l := range w.open {
		l.work.Wait()
		if i > 0 {
			err = errors.Join(err, w.close(l))
		}
	}
	return errors.Join(err, w.closed.close())
}

func (w *walker) walk(ctx context.Context) error {
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		l := w.open[len(w.open)-1]
		e, err := l.nextItem()
		if err != nil && !errors.Is(err, io.EOF) {
			if err := w.visitor.unreadable(l, err); err != nil {
				return err
			}
			l.ended = true
			continue
		}
		if err == nil {
			down, err := w.visitor.entry(ctx, l, e)
			if err == nil && down != nil {
				err = w.down(down)
			}
			if err != nil {
				return err
			}
			continue
		}
		if done, err := w.finish(ctx, l); done || err != nil {
			return err
		}
	}
}

// finish leaves the level when all of its work is done.
func (w *walker) finish(ctx context.Context, l *level) (done bool, err error) {
	l.work.Wait()
	if l.hasRetries() {
		return false, nil
	}
	if err := context.Cause(ctx); err != nil {
		return false, err
	}
	if err := w.visitor.leave(ctx, l); err != nil {
		return false, err
	}
	if len(w.open) == 1 {
		return true, nil
	}
	return false, w.up(ctx)
}

// close closes a level and keeps its buffer for the next one.
func (w *walker) close(l *level) error {
	if l.entries.buf != nil {
		w.spare = append(w.spare, l.entries.buf)
		l.entries = listing{fd: -1}
	}
	return l.close()
}

func (w *walker) buffer() (b []byte) {
	if last := len(w.spare) - 1; last >= 0 {
		b, w.spare = w.spare[last], w.spare[:last]
	}
	return b
}

// down makes the level the deepest one.
func (w *walker) down(l *level) error {
	l.entries.buf = w.buffer()
	w.open = append(w.open, l)
	if len(w.open) <= openLevels {
		return nil
	}
	highest := w.open[1]
	highest.work.Wait()
	f := highest.frame()
	if !w.keepNames {
		f.name = ""
	}
	w.open = append(w.open[:1], w.open[2:]...)
	return errors.Join(w.closed.push(&f), w.close(highest))
}

// up closes the deepest level after reopening the one above.
func (w *walker) up(ctx context.Context) error {
	last := len(w.open) - 1
	l := w.open[last]
	if last == 1 && w.closed.depth > 0 {
		above, err := w.reopen(ctx, l)
		if err != nil {
			return err
		}
		if above == nil { // l is lost as well
			return nil
		}
		w.open = []*level{w.open[0], above, l}
		last++
	}
	err := w.visitor.returned(ctx, w.open[last-1], l)
	w.open = w.open[:last]
	return errors.Join(err, w.close(l))
}
