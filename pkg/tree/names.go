package tree

import (
	"hash/maphash"
	"sync/atomic"
)

// maxNames is how many names of open directories a copy remembers.
const maxNames = 64 << 10

// nameMemory is shared by the names of all directories of a copy.
type nameMemory struct {
	seed maphash.Seed
	used atomic.Int64
	max  int64
}

// names are the hashes of a directory's listed names, as far as there is room. A file
// whose name is new in its directory is created without O_EXCL, which costs NFS another
// round trip and the server another write.
type names struct {
	memory *nameMemory
	seen   map[uint64]struct{}
	// partial: some names were not recorded.
	partial bool
}

// isNew reports whether the name is certainly new, and records it. If it is not, a file
// that was new may be the same one, and has to be complete before this one is begun:
// settle is set.
func (n *names) isNew(name string) (is, settle bool) {
	if n.memory == nil || n.partial {
		return false, false
	}
	hash := maphash.String(n.memory.seed, name)
	if _, have := n.seen[hash]; have {
		return false, true
	}
	if n.memory.used.Add(1) > n.memory.max {
		n.memory.used.Add(-1)
		n.partial = true
		n.forget()
		return false, true // once: no later one is new
	}
	if n.seen == nil {
		n.seen = map[uint64]struct{}{}
	}
	n.seen[hash] = struct{}{}
	return true, false
}

// forget drops the names, which makes room for those of other directories.
func (n *names) forget() {
	if n.memory != nil {
		n.memory.used.Add(-int64(len(n.seen)))
		n.seen = nil
	}
}
