package tree

import "sync"

type inode struct{ dev, ino uint64 }

// links finds the names that are one file. It remembers a file only until it
// has met all of its names.
type links struct {
	mu   sync.Mutex
	seen map[inode]*linked
}

type linked struct {
	made chan struct{} // closed when the first name has been made or not
	path string        // of that name in the target; empty: it was not made
	left uint64        // names not met yet
}

// first tells whether this is the first name of the file that is met. If so, the
// caller makes the file and calls done with its path, or with none if it could
// not; if not, it gets the one to wait for.
func (l *links) first(i inode, names uint64) (*linked, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if have := l.seen[i]; have != nil {
		if have.left--; have.left == 0 {
			delete(l.seen, i)
		}
		return have, false
	}
	if l.seen == nil {
		l.seen = map[inode]*linked{}
	}
	have := &linked{made: make(chan struct{}), left: names - 1}
	l.seen[i] = have
	return have, true
}

func (l *links) done(i inode, e *linked, path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.path = path
	if path == "" && l.seen[i] == e {
		delete(l.seen, i) // the next name is the first
	}
	close(e.made)
}
