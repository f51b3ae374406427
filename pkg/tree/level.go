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

// maxTries bounds how often a name is looked up again because something else was
// there, or nothing, when it came to be read.
const maxTries = 16

// ErrChanged is that of a copy of something that is replaced whenever it is looked at.
var ErrChanged = errors.New("something else keeps being put in its place")

// sourceError is an error that came from reading the source.
type sourceError struct{ error }

func (e sourceError) Unwrap() error { return e.error }

func sourceErr(err error) error {
	if err == nil {
		return nil
	}
	return sourceError{err}
}

// level is a directory on the way from the top of a walk to where it is. It is open.
type level struct {
	name string
	path string // for messages, and shortened where it is long
	id   identity
	descriptors
	// want is what it was like when it was opened.
	want unix.Stat_t
	// tries is how often the name was looked up again before.
	tries uint8

	entries listing
	names   names // of a copy
	next    int64 // where the listing goes on after the last entry
	seen    int64 // entries that it returned
	ended   bool
	// resumed: the listing goes on where another descriptor stopped, and has returned
	// nothing yet. If it has to begin again, repeats says that this is no harm.
	resumed, repeats bool

	// work is what other goroutines do with the descriptors.
	work         sync.WaitGroup
	count, bytes atomic.Int64 // of what was copied
	cut          atomic.Bool  // something in it was gone before it could be read
	incomplete   bool         // so was the rest of its listing
	mu           sync.Mutex
	again        []retry
}

// openTop opens the directory and, unless it is nil, that of its copy.
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

// openLevel opens a directory of the level above, and no copy of it.
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

// lookAgain has an entry looked up again after those that the walk is at.
func (l *level) lookAgain(name string, tries uint8) error {
	if tries >= maxTries {
		return fmt.Errorf("%s: %w", l.join(name), ErrChanged)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.again = append(l.again, retry{name, tries + 1})
	return nil
}

func (l *level) unfinished() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.again) > 0
}

func (l *level) takeAgain() (retry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.again) == 0 {
		return retry{}, false
	}
	r := l.again[len(l.again)-1]
	l.again = l.again[:len(l.again)-1]
	return r, true
}

// nextItem returns what is to be looked up again first: there is never more of it
// than goroutines at work.
func (l *level) nextItem() (item, error) {
	if r, ok := l.takeAgain(); ok {
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

// frame is what is kept of the level. Nobody works in it any more.
func (l *level) frame() frame {
	return frame{
		name: l.name, again: l.again,
		dirState: dirState{
			ID: l.id, Next: l.next, Seen: l.seen, Ended: l.ended, Entries: l.count.Load(), Bytes: l.bytes.Load(),
			Mode: l.want.Mode, UID: l.want.Uid, GID: l.want.Gid, Atim: l.want.Atim, Mtim: l.want.Mtim,
			Tries: l.tries, Cut: l.cut.Load(), Incomplete: l.incomplete,
		},
	}
}
