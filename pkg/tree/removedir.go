package tree

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

const (
	// maxDepth is how far below its base a directory is emptied where it is. A deeper
	// one is moved to the base first. It bounds what each worker has open.
	maxDepth = 32
	// maxBases is how many bases there are one in another.
	maxBases = 4
	// maxRounds is how often a directory is listed again that was not empty in the
	// end: readdir(3) may leave out entries, but who needs more rounds than this
	// shares the directory with somebody who writes.
	maxRounds = 8
)

// directory of the tree, while it is open.
type directory struct {
	fd    int
	ino   uint64
	name  string
	up    *directory // nil for the one that the caller has open
	base  *base      // nil for one that is not of the tree
	depth int        // below the base

	unlocking sync.Once
	unlocked  bool
}

// base is the directory to which those too deep below it are moved, under names
// with a number, and where they are removed when what lies there otherwise is gone.
type base struct {
	dir    *directory
	nested int // in how many others
	prefix string

	taken int // how many of those that were moved have been removed since

	mu    sync.Mutex
	moved int
}

func newBase(d *directory) *base {
	b := &base{dir: d, prefix: ".moved-" + rand.Text() + "-"}
	if d.up != nil && d.up.base != nil {
		b.nested = d.up.base.nested + 1
	}
	return b
}

func (b *base) nameOf(n int) string { return fmt.Sprint(b.prefix, n) }

func (b *base) soFar() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.moved
}

// path is from the tree's name on.
func (d *directory) path() string {
	if d.up == nil {
		return ""
	}
	return path.Join(d.up.path(), d.name)
}

// gone tells whether the directory, or one on the way to it, is not in the tree
// any more: another controller has removed it, or somebody has moved it away.
func (d *directory) gone() bool {
	if d.up == nil {
		return false
	}
	st, err := fsat.LstatNow(d.up.fd, d.name)
	if errors.Is(err, unix.ESTALE) {
		return d.up.gone()
	}
	return errors.Is(err, fs.ErrNotExist) || err == nil && st.Ino != d.ino
}

// What follows returns whether what it was to remove is gone.

// directory removes the directory name of d, where it is or from the base.
func (w *remover) directory(ctx context.Context, d *directory, name string) (gone bool) {
	if d.base == nil || d.depth < maxDepth {
		return w.below(ctx, d, name, d.base)
	}
	err := w.move(ctx, d, name)
	switch {
	case err == nil:
		return true // from here
	case ctx.Err() != nil:
		return false
	case errors.Is(err, fs.ErrNotExist), d.base.nested+1 >= maxBases:
		return w.trouble(d, name, err)
	}
	return w.below(ctx, d, name, nil)
}

// below removes the directory name of d where it is; where it has no base, it
// becomes one.
func (w *remover) below(ctx context.Context, d *directory, name string, of *base) (gone bool) {
	sub, err := w.open(d, name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return w.replaced(ctx, d, name)
	}
	if err != nil {
		return w.trouble(d, name, err)
	}
	defer sub.close()
	if sub.base = of; of == nil {
		sub.base, sub.depth = newBase(sub), 0
	}
	for range maxRounds {
		if !w.empty(ctx, sub) {
			return false
		}
		gone, err := w.unlink(ctx, d, name, unix.AT_REMOVEDIR)
		if errors.Is(err, unix.ENOTDIR) {
			return w.replaced(ctx, d, name)
		}
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, fs.ErrExist) {
			return gone
		}
		if sub.gone() {
			break
		}
		if err := sub.rewind(); err != nil {
			return w.trouble(d, name, err)
		}
	}
	w.leave(d, name, ErrWritten)
	return false
}

// replaced removes what was a directory a moment ago.
func (w *remover) replaced(ctx context.Context, d *directory, name string) (gone bool) {
	gone, err := w.unlink(ctx, d, name, 0)
	if err != nil { // it is one again
		w.leave(d, name, ErrWritten)
	}
	return gone
}

// empty removes what a directory holds, and from a base what was moved there.
func (w *remover) empty(ctx context.Context, d *directory) (all bool) {
	all = w.sweep(ctx, d)
	if d.base.dir != d {
		return all
	}
	for b, moved := d.base, d.base.soFar(); b.taken < moved && ctx.Err() == nil; moved = b.soFar() {
		work := w.work()
		for ; b.taken < moved; b.taken++ {
			work.entry(ctx, d, dirent{name: b.nameOf(b.taken), kind: fs.ModeDir})
		}
		all = work.wait() && all
	}
	return all && ctx.Err() == nil
}

// sweep removes what one listing of a directory shows, until the directory is gone
// itself. What is no directory is removed by this goroutine: unlink(2) holds its
// directory locked until the server has answered, and others would only wait.
func (w *remover) sweep(ctx context.Context, d *directory) (all bool) {
	buf, release := w.piece()
	defer release()
	list, work := listing{fd: d.fd, buf: buf}, w.work()
	for n := 0; ctx.Err() == nil; n++ {
		look := n > 0 && len(list.left) == 0
		e, err := list.next()
		if errors.Is(err, io.EOF) || look && d.gone() {
			break
		}
		if err != nil {
			work.gone(w.trouble(d, "", err))
			break
		}
		w.found(1)
		work.entry(ctx, d, e)
	}
	return work.wait() && ctx.Err() == nil
}

// work is what is done for one directory, by this goroutine and by others.
type work struct {
	*remover
	wg   sync.WaitGroup
	left atomic.Bool
}

func (w *remover) work() *work { return &work{remover: w} }

func (w *work) gone(is bool) {
	if !is {
		w.left.Store(true)
	}
}

// entry removes a directory by a free worker if there is one, and by this goroutine
// if there is none, so that nested directories cannot use up the workers while
// waiting for each other.
func (w *work) entry(ctx context.Context, d *directory, e dirent) {
	if !e.kind.IsDir() {
		gone, err := w.unlink(ctx, d, e.name, 0)
		if !errors.Is(err, unix.EISDIR) { // the listing did not say, or it was replaced
			w.gone(gone)
			return
		}
	}
	select {
	case w.slots <- struct{}{}:
		w.wg.Go(func() {
			defer func() { <-w.slots }()
			w.gone(w.directory(ctx, d, e.name))
		})
	default:
		w.gone(w.directory(ctx, d, e.name))
	}
}

func (w *work) wait() (all bool) {
	w.wg.Wait()
	return !w.left.Load()
}
