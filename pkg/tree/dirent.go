package tree

import (
	"bytes"
	"encoding/binary"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// listingBuffer is how much of a directory is read at a time.
const listingBuffer = 32 << 10

// dirent is one entry of a directory as getdents64(2) lists it.
type dirent struct {
	name string
	// kind has the type bits of fs.FileMode; fs.ModeIrregular if the file system does
	// not report the type.
	kind fs.FileMode
	// next is the offset after this entry, for listing.seek.
	next int64
}

// listing reads an open directory one buffer at a time, so that its memory does not
// depend on the number of entries. It does not own the descriptor.
type listing struct {
	fd   int
	buf  []byte // allocated by the first read
	left []byte // of buf, not returned yet
}

// next returns the next entry other than "." and "..", or io.EOF.
func (l *listing) next() (dirent, error) {
	for {
		if len(l.left) == 0 {
			if err := l.fill(); err != nil {
				return dirent{}, err
			}
		}
		if e, ok := l.parse(); ok {
			return e, nil
		}
	}
}

func (l *listing) fill() error {
	if l.buf == nil {
		l.buf = make([]byte, listingBuffer)
	}
	n, err := restart(func() (int, error) { return unix.Getdents(l.fd, l.buf) })
	if err != nil {
		return &os.PathError{Op: "getdents64", Path: ".", Err: err}
	}
	if n == 0 {
		return io.EOF
	}
	l.left = l.buf[:n]
	return nil
}

// parse removes one struct linux_dirent64 from the buffer: d_ino and d_off of 8
// bytes, d_reclen of 2, d_type of 1, d_name up to its NUL.
func (l *listing) parse() (dirent, bool) {
	const reclenAt, typeAt, nameAt = 16, 18, 19
	const typeShift = 12 // from DT_DIR to S_IFDIR, see DTTOIF in dirent.h
	size := int(binary.NativeEndian.Uint16(l.left[reclenAt:]))
	record := l.left[:size]
	l.left = l.left[size:]
	name, _, _ := bytes.Cut(record[nameAt:], []byte{0})
	if ino := binary.NativeEndian.Uint64(record); ino == 0 || string(name) == "." || string(name) == ".." {
		return dirent{}, false
	}
	return dirent{
		name: string(name), kind: kindOf(uint32(record[typeAt]) << typeShift),
		next: int64(binary.NativeEndian.Uint64(record[8:])),
	}, true
}

// seek continues the listing at dirent.next of an entry, which another listing of the
// same directory may have returned; 0 is the beginning.
func (l *listing) seek(offset int64) error {
	l.left = nil
	_, err := restart(func() (int64, error) { return unix.Seek(l.fd, offset, io.SeekStart) })
	if err != nil {
		return &os.PathError{Op: "lseek", Path: ".", Err: err}
	}
	return nil
}

// kindOf returns the type bits of a mode as stat(2) returns it; fs.ModeIrregular if it
// has none that is known.
func kindOf(mode uint32) fs.FileMode {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return 0
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	case unix.S_IFCHR, unix.S_IFBLK:
		return fs.ModeDevice
	}
	return fs.ModeIrregular
}
