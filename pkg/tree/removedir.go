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
	// maxDepth is how deep below its base a directory is emptied in place. A deeper one
	// is moved to the base first. It bounds the descriptors of each worker.
	maxDepth = 32
	// maxBases is how many bases may be nested.
	maxBases = 4
	// maxRounds is how often a directory that was not empty in the end is listed again:
	// readdir(3) may skip entries, but if this many rounds are not enough, somebody
	// else writes to the directory.
	maxRounds = 8
)

// directory is an open directory of the tree.
type directory struct {
	fd    int
	ino   uint64
	name  string
	up    *directory // nil for the one that the caller opened
	base  *base      // nil for one outside of the tree
	depth int        // below the base

	unlocking sync.Once
	unlocked  bool
}

// base is a directory into which directories too deep below it are moved, under
// numbered names. They are removed from there after its other entries.
type base struct {
	dir    *directory
	nested int // in how many others
	prefix string

	removed int // how many of the moved ones have been removed since

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

func (b *base) movedSoFar() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.moved
}

// path begins with the name of the tree.
func (d *directory) path() string {
	if d.up == nil {
		return ""
	}
	return path.Join(d.up.path(), d.name)
}

// gone reports whether the directory, or one that leads to it, has left the tree:
// another controller has removed it, or somebody has moved it away.
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

// The following methods report whether what they had to remove is gone.

// directory removes the directory name of d, in place or from the base.
func (w *remover) directory(ctx context.Context, d *directory, name string) (gone bool) {
	if d.base == nil || d.depth < maxDepth {
		return w.below(ctx, d, name, d.base)
	}
	err := w.move(ctx, d, name)
	switch {
	case err == nil:
		return true // from d
	case ctx.Err() != nil:
		return false
	case errors.Is(err, fs.ErrNotExist), d.base.nested+1 >= maxBases:
		return w.failed(d, name, err)
	}
	return w.below(ctx, d, name, nil)
}

// below removes the directory name of d in place. Without a base, it becomes one.
func (w *remover) below(ctx context.Context, d *directory, name string, of *base) (gone bool) {
	sub, err := w.open(d, name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return w.replaced(ctx, d, name)
	}
	if err != nil {
		return w.failed(d, name, err)
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
			return w.failed(d, name, err)
		}
	}
	w.keep(d, name, ErrWritten)
	return false
}

// replaced removes an entry that was a directory a moment ago.
func (w *remover) replaced(ctx context.Context, d *directory, name string) (gone bool) {
	gone, err := w.unlink(ctx, d, name, 0)
	if err != nil { // it is a directory again
		w.keep(d, name, ErrWritten)
	}
	return gone
}

// empty removes the content of a directory and, from a base, what was moved there.
func (w *remover) empty(ctx context.Context, d *directory) (all bool) {
	all = w.sweep(ctx, d)
	if d.base.dir != d {
		return all
	}
	for b, moved := d.base, d.base.movedSoFar(); b.removed < moved && ctx.Err() == nil; moved = b.movedSoFar() {
		work := w.work()
		for ; b.removed < moved; b.removed++ {
			work.entry(ctx, d, dirent{name: b.nameOf(b.removed), kind: fs.ModeDir})
		}
		all = work.wait() && all
	}
	return all && ctx.Err() == nil
}

// sweep removes what one listing of a directory returns, until the directory itself is
// gone. This goroutine removes everything but directories: unlink(2) locks the parent
// until the server has answered, so others would only wait.
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
			work.gone(w.failed(d, "", err))
			break
		}
		w.found(1)
		work.entry(ctx, d, e)
	}
	return work.wait() && ctx.Err() == nil
}

// work is the work for one directory, by this goroutine and by others.
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

// entry has a directory removed by a free worker if there is one, and removes it itself
// otherwise, so that nested directories cannot use up the workers while waiting for
// each other.
func (w *work) entry(ctx context.Context, d *directory, e dirent) {
	if !e.kind.IsDir() {
		gone, err := w.unlink(ctx, d, e.name, 0)
		if !errors.Is(err, unix.EISDIR) { // its type was not listed, or it was replaced
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
