package tree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// maxTries bounds how often a name is looked up again because its entry was replaced or
// removed before it could be read.
const maxTries = 16

// ErrChanged says that an entry of the source was replaced on every try to copy it.
var ErrChanged = errors.New("it keeps being replaced")

// sourceError is an error of reading the source.
type sourceError struct{ error }

func (e sourceError) Unwrap() error { return e.error }

func sourceErr(err error) error {
	if err == nil {
		return nil
	}
	return sourceError{err}
}

// level is an open directory on the path from the top of a walk to its position.
type level struct {
	name string
	path string // for messages, and shortened where it is long
	id   identity
	descriptors
	// want has its attributes when it was opened.
	want unix.Stat_t
	// tries is how often its name was looked up again.
	tries uint8

	entries listing
	names   names // of a copy
	next    int64 // offset of the listing after the last entry
	seen    int64 // entries that the listing returned
	ended   bool
	// resumed: the listing continues where another descriptor stopped, and has returned
	// nothing yet. repeats: it may start over, as entries may be listed twice.
	resumed, repeats bool

	// work waits for other goroutines that use the descriptors.
	work         sync.WaitGroup
	count, bytes atomic.Int64 // of what was copied
	missed       atomic.Bool  // an entry was gone before it could be read
	incomplete   bool         // the rest of its listing could not be read
	mu           sync.Mutex
	retries      []retry
}

// openTop opens the directory and, unless it is nil, its copy.
func openTop(from, to *os.Root) (*level, error) {
	l := &level{path: ".", descriptors: descriptors{-1, -1}}
	var err error
	if l.src, err = fsat.OpenRoot(from); err != nil {
		return nil, sourceError{err}
	}
	l.entries.fd = l.src
	if l.want, err = fsat.Stat(l.src, "."); err == nil && to != nil {
		l.dst, err = fsat.OpenRoot(to)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(l.src))
	}
	l.id = identityOf(&l.want)
	return l, nil
}

// openLevel opens a directory of the level above, but not its copy.
func openLevel(above *level, name string) (*level, error) {
	src, err := fsat.Open(above.src, name, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	l := &level{name: name, path: above.join(name), descriptors: descriptors{src, -1}, entries: listing{fd: src}}
	if l.want, err = fsat.Stat(src, l.path); err != nil {
		return nil, errors.Join(err, l.close())
	}
	l.id = identityOf(&l.want)
	return l, nil
}

// retryLater schedules another lookup of an entry.
func (l *level) retryLater(name string, tries uint8) error {
	if tries >= maxTries {
		return fmt.Errorf("%s: %w", l.join(name), ErrChanged)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retries = append(l.retries, retry{name, tries + 1})
	return nil
}

func (l *level) hasRetries() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.retries) > 0
}

func (l *level) popRetry() (retry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.retries) == 0 {
		return retry{}, false
	}
	r := l.retries[len(l.retries)-1]
	l.retries = l.retries[:len(l.retries)-1]
	return r, true
}

// nextItem returns retries before new entries, so that there are never more of them
// than concurrent goroutines.
func (l *level) nextItem() (item, error) {
	if r, ok := l.popRetry(); ok {
		return item{name: r.name, kind: fs.ModeIrregular, tries: r.tries}, nil
	}
	if l.ended {
		return item{}, io.EOF
	}
	e, err := l.entries.next()
	if errors.Is(err, io.EOF) && l.resumed {
		if err = l.verifyEnd(); err == nil {
			e, err = l.entries.next()
		}
	}
	if err != nil {
		l.ended = errors.Is(err, io.EOF)
		return item{}, err
	}
	l.resumed = false
	l.next, l.seen = e.next, l.seen+1
	return item{name: e.name, kind: e.kind}, nil
}

// alive reports whether the directory has not been removed; false if the server does
// not say.
func (l *level) alive() bool {
	there, _ := fsat.Exists(l.src)
	return there
}

func (l *level) close() error {
	l.names.forget()
	return l.descriptors.close()
}

func (l *level) join(name string) string {
	const longest = 1 << 10
	p := path.Join(l.path, name)
	if len(p) > longest {
		p = "…" + p[len(p)-longest:]
	}
	return p
}

// frame returns the state to keep of a level that nobody works in any more.
func (l *level) frame() frame {
	return frame{
		name: l.name, retries: l.retries,
		dirState: dirState{
			ID: l.id, Next: l.next, Seen: l.seen, Ended: l.ended, Entries: l.count.Load(), Bytes: l.bytes.Load(),
			Mode: l.want.Mode, UID: l.want.Uid, GID: l.want.Gid, Atim: l.want.Atim, Mtim: l.want.Mtim,
			Tries: l.tries, Missed: l.missed.Load(), Incomplete: l.incomplete,
		},
	}
}
