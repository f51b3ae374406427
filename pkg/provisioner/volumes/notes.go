package volumes

import (
	"bytes"
	"maps"
	"sync"
	"time"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// notes say whether entries of the journal are still needed, by name. An entry is decoded
// when it changes, not at every check.
type notes struct {
	mu    sync.Mutex
	known map[string]note
}

type note struct {
	data  []byte
	began time.Time
	// creation has no topology; nil if the entry cannot be read.
	creation *plan.Creation
	err      error
}

// read returns the note of an entry.
func (n *notes) read(name string, data []byte) note {
	n.mu.Lock()
	known, found := n.known[name]
	n.mu.Unlock()
	if found && bytes.Equal(known.data, data) {
		return known
	}
	read := note{data: data}
	if read.creation, read.err = plan.RestoreCreation(data, nil); read.err != nil {
		read.began = plan.BeganAt(data)
	} else {
		read.began = read.creation.Began
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = map[string]note{}
	}
	n.known[name] = read
	return read
}

// retain forgets what has no entry.
func (n *notes) retain(entries map[string][]byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.known, func(name string, _ note) bool { return entries[name] == nil })
}
