package tree

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// errUnsafe: the archive refers to something outside of the tree.
var errUnsafe = errors.New("unsafe archive")

// Extract unpacks a tar archive, gzip-compressed or not, into the empty directory
// to. It refuses absolute names, names with ".." and hard links to such names, writes
// through no symlink, and skips devices. A truncated archive is an error. Memory does
// not depend on the archive.
func Extract(ctx context.Context, r io.Reader, compressed bool, to *os.Root, p *Progress) error {
	if p == nil {
		p = &Progress{}
	}
	if compressed {
		z, err := gzip.NewReader(r)
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		defer z.Close() //nolint:errcheck // the checksum is checked by reading to the end
		r = z
	}
	x := &extractor{to: to, progress: p, open: []openDir{{name: "."}}}
	if err := x.all(ctx, tar.NewReader(r)); err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	// Read to the end, where gzip has its checksum.
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	return x.finishDirs("")
}

// longestName bounds the depth of an archive's directories.
const longestName = 32 << 10

type extractor struct {
	to       *os.Root
	progress *Progress
	// open has the directory of the last member and its parents, from the tree's own.
	// They get their attributes when the archive continues elsewhere.
	open []openDir
}

func (x *extractor) all(ctx context.Context, archive *tar.Reader) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := inside(h.Name)
		if err != nil {
			return err
		}
		if err := x.member(ctx, name, h, archive); err != nil {
			return fmt.Errorf("member %q: %w", h.Name, err)
		}
	}
}

// inside returns the cleaned name below the tree, "." for the tree itself.
func inside(name string) (string, error) {
	if strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("%w: name %q", errUnsafe, name)
	}
	if len(name) > longestName {
		return "", fmt.Errorf("%w: a name of %d bytes, at most %d are allowed", errUnsafe, len(name), longestName)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", fmt.Errorf("%w: name %q", errUnsafe, name)
		}
	}
	return path.Clean(name), nil
}

func (x *extractor) member(ctx context.Context, name string, h *tar.Header, content io.Reader) error {
	if h.Typeflag == tar.TypeDir {
		return x.directory(name, h)
	}
	if name == "." {
		return fmt.Errorf("%w: the tree itself is not a directory", errUnsafe)
	}
	parent, err := x.enterDir(path.Dir(name))
	if err != nil {
		return err
	}
	defer parent.Close()
	base := path.Base(name)
	// A later member replaces an earlier one of the same name, as with tar(1).
	if info, err := parent.Lstat(base); err == nil && !info.IsDir() {
		if err := parent.Remove(base); err != nil {
			return err
		}
		x.progress.entries.Add(-1)
	}
	switch h.Typeflag {
	case tar.TypeReg:
		err = x.file(ctx, parent, base, h, content)
	case tar.TypeLink:
		err = x.link(h.Linkname, parent, base)
	case tar.TypeSymlink:
		if err = parent.Symlink(h.Linkname, base); err == nil {
			err = fsat.WithFD(parent, func(dir int) error { return setAttributesAt(dir, base, headerStat(h)) })
		}
	case tar.TypeFifo:
		err = x.fifo(parent, base, h)
	case tar.TypeChar, tar.TypeBlock:
		x.progress.devices.Add(1)
		return nil
	default:
		err = fmt.Errorf("%w: of type %q", errors.ErrUnsupported, h.Typeflag)
	}
	if err == nil {
		x.progress.entries.Add(1)
	}
	return err
}

func (x *extractor) file(ctx context.Context, parent *os.Root, name string, h *tar.Header, content io.Reader) error {
	f, err := parent.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, &counted{ctx, content, x.progress})
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = fsat.WithFD(parent, func(dir int) error {
			fd := int(f.Fd())
			made, err := fsat.Stat(fd, name)
			if err != nil {
				return err
			}
			return setAttributes(fd, dir, name, &made, headerStat(h))
		})
	}
	return errors.Join(err, f.Close())
}

// counted counts the bytes read, and fails when ctx ends.
type counted struct {
	ctx      context.Context //nolint:containedctx // io.Reader has no other way
	r        io.Reader
	progress *Progress
}

func (c *counted) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(b)
	c.progress.bytes.Add(int64(n))
	return n, err
}

// link creates a hard link to an earlier member. It follows no symlink to that.
func (x *extractor) link(target string, parent *os.Root, name string) error {
	target, err := inside(target)
	if err != nil {
		return err
	}
	from, err := x.walkTo(path.Dir(target), noVisit)
	if err != nil {
		return err
	}
	defer from.Close()
	return fsat.WithFD(from, func(src int) error {
		return fsat.WithFD(parent, func(dst int) error { return fsat.Link(src, path.Base(target), dst, name) })
	})
}

func (x *extractor) fifo(parent *os.Root, name string, h *tar.Header) error {
	return fsat.WithFD(parent, func(dir int) error {
		if err := fsat.Mkfifo(dir, name); err != nil {
			return err
		}
		return setAttributesAt(dir, name, headerStat(h))
	})
}

// headerStat returns the attributes in the header of a tar member.
func headerStat(h *tar.Header) *unix.Stat_t {
	kind := uint32(0)
	if h.Typeflag == tar.TypeSymlink {
		kind = unix.S_IFLNK
	}
	return &unix.Stat_t{
		Mode: kind | uint32(h.Mode)&(permBits|specialBits), Uid: uint32(h.Uid), Gid: uint32(h.Gid),
		Atim: unix.NsecToTimespec(cmp.Or(h.AccessTime, h.ModTime).UnixNano()), Mtim: unix.NsecToTimespec(h.ModTime.UnixNano()),
	}
}
