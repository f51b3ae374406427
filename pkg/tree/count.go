package tree

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// Count returns how much of the tree Copy would copy. It lists directories and stats
// files; entries removed meanwhile are not counted. Memory and descriptors do not
// depend on the width of the tree. Its depth is limited as for Copy without
// CopyOptions.Scratch.
func Count(ctx context.Context, from *os.Root) (bytes, entries int64, err error) {
	return count(ctx, from, nil)
}

// count is Count with a file for what does not fit into memory.
func count(ctx context.Context, from *os.Root, spill func() (*os.File, error)) (bytes, entries int64, err error) {
	top, err := openTop(from, nil)
	if err != nil {
		return 0, 0, err
	}
	c := &counter{}
	w := walker{visitor: c, closed: frames{spill: spill}}
	err = errors.Join(w.run(ctx, top), top.close())
	return c.bytes, c.entries, err
}

type counter struct {
	reader
	bytes, entries int64
}

func (c *counter) entry(_ context.Context, l *level, e item) (*level, error) {
	c.entries++
	if e.kind == fs.ModeIrregular || e.kind.IsRegular() {
		st, err := fsat.Lstat(l.src, e.name)
		if err != nil {
			return nil, notGone(err)
		}
		if e.kind = kindOf(st.Mode); e.kind.IsRegular() {
			c.bytes += st.Size
		}
	}
	if !e.kind.IsDir() {
		return nil, nil
	}
	down, err := openLevel(l, e.name)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, nil
	}
	return down, notGone(err)
}

func notGone(err error) error {
	if fsat.IsGone(err) {
		return nil
	}
	return err
}

// reader implements visitor as far as all read-only walks have in common.
type reader struct{}

func (reader) unreadable(_ *level, err error) error             { return notGone(err) }
func (reader) leave(context.Context, *level) error              { return nil }
func (reader) returned(context.Context, *level, *level) error   { return nil }
func (reader) lost(_ context.Context, _ *level, f *frame) error { return &movedError{f.name} }
