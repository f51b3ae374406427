package tree

import (
	"hash/maphash"
	"sync/atomic"
)

// maxNames is how many names a copy remembers of the directories that it has open.
const maxNames = 64 << 10

// memory of names for all directories of a copy.
type nameMemory struct {
	seed maphash.Seed
	used atomic.Int64
	max  int64
}

// names are those of one directory that were listed, by their hashes, as far as there
// is room. A file whose name is new in its directory is made without O_EXCL, which
// costs NFS one more round trip and the server one more write.
type names struct {
	memory *nameMemory
	seen   map[uint64]struct{}
	// partial: some names were not noted.
	partial bool
}

// isNew tells whether the name is certainly new, and notes it.
func (n *names) isNew(name string) bool {
	if n.memory == nil || n.partial {
		return false
	}
	hash := maphash.String(n.memory.seed, name)
	if _, have := n.seen[hash]; have {
		return false
	}
	if n.memory.used.Add(1) > n.memory.max {
		n.memory.used.Add(-1)
		n.partial = true
		n.forget()
		return false
	}
	if n.seen == nil {
		n.seen = map[uint64]struct{}{}
	}
	n.seen[hash] = struct{}{}
	return true
}

// forget makes room for the names of other directories.
func (n *names) forget() {
	if n.memory != nil {
		n.memory.used.Add(-int64(len(n.seen)))
		n.seen = nil
	}
}
