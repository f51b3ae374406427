package tree

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/keyed"
)

// maxKnown bounds what is kept in memory of files with several names.
const maxKnown = 16 << 10

// fileState identifies an unchanged file: two names are links of the same file if it is
// the same when each of them is opened.
type fileState struct {
	id    identity
	ctime unix.Timespec
	size  int64
}

func stateOf(st *unix.Stat_t) fileState {
	return fileState{identityOf(st), st.Ctim, st.Size}
}

// name is its name in the scratch directory.
func (s fileState) name() string {
	return fmt.Sprintf("file-%x-%x-%x-%x-%x", s.id.Dev, s.id.Ino, s.ctime.Sec, s.ctime.Nsec, s.size)
}

// links preserves hard links. The copy of a file's first name is linked into the scratch
// directory, and its other names from there, so that nothing needed for them is in
// memory.
type links struct {
	// busy files have a name that is being copied.
	busy  keyed.Limiter[fileState]
	mu    sync.Mutex
	known map[identity]fileState
	full  bool // known is incomplete
}

// seen reports whether a name of the file is known to have been copied, and whether the
// file may be in the scratch directory in this state.
func (l *links) seen(s fileState) (known, maybe bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	have, known := l.known[s.id]
	return known, l.full || known && have == s
}

func (l *links) remember(s fileState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[identity]fileState{}
	}
	if _, ok := l.known[s.id]; !ok && len(l.known) >= maxKnown {
		l.full = true
		return
	}
	l.known[s.id] = s
}
