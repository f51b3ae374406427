package tree

import (
	"context"
	"errors"
	"io"
	"io/fs"
)

// openLevels is how many directories above each other a walk has open.
const openLevels = 16

// item is an entry that a walk has come to.
type item struct {
	name  string
	kind  fs.FileMode // as dirent.kind
	tries uint8       // how often it was looked up again before
	// fresh: a copy has nothing of that name in the target.
	fresh bool
}

// visitor says what a walk is for.
type visitor interface {
	// entry deals with an entry of the level. If the walk is to go down into it, it
	// returns it open.
	entry(ctx context.Context, l *level, e item) (down *level, err error)
	// unreadable is called when the listing fails; nil ends the directory there.
	unreadable(l *level, err error) error
	// leave is called when all in the level is done.
	leave(ctx context.Context, l *level) error
	// left is called after leave when the level above is open again.
	left(ctx context.Context, above, l *level) error
	// lost is called when a directory is no longer where the walk came from, after
	// all that was open below is closed. The frame has the counts of all that.
	lost(ctx context.Context, above *level, f *frame) error
}

// walker goes through a tree depth first with a bounded number of descriptors. The
// way back from a directory to one that was closed is "..".
type walker struct {
	visitor visitor
	// open are the first level, which is always open, and the deepest ones.
	open []*level
	// closed are those in between.
	closed frames
	// named says that frames keep names, so that a directory which was moved is found
	// to be missing; without, that is an error.
	named bool
	// spare are buffers of listings that are not open any more.
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

// finish leaves the level when nothing is left to do in it.
func (w *walker) finish(ctx context.Context, l *level) (done bool, err error) {
	l.work.Wait()
	if l.unfinished() {
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

// close takes the buffer of a level for the next one.
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
	if !w.named {
		f.name = ""
	}
	w.open = append(w.open[:1], w.open[2:]...)
	return errors.Join(w.closed.push(&f), w.close(highest))
}

// up closes the deepest level, after it has opened the one above.
func (w *walker) up(ctx context.Context) error {
	last := len(w.open) - 1
	l := w.open[last]
	if last == 1 && w.closed.depth > 0 {
		above, err := w.reopen(ctx, l)
		if err != nil {
			return err
		}
		if above == nil { // nor is l there
			return nil
		}
		w.open = []*level{w.open[0], above, l}
		last++
	}
	err := w.visitor.left(ctx, w.open[last-1], l)
	w.open = w.open[:last]
	return errors.Join(err, w.close(l))
}
