package store

import (
	"slices"
	"strings"
	"sync"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// exports remembers those this process has worked on: what there is to list.
type exports struct {
	mu   sync.Mutex
	seen map[volume.Export]bool
}

func (e *exports) add(export volume.Export) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.seen == nil {
		e.seen = map[volume.Export]bool{}
	}
	e.seen[export] = true
}

// list is sorted, by the names that exports have in messages.
func (e *exports) list() []volume.Export {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []volume.Export
	for export := range e.seen {
		all = append(all, export)
	}
	slices.SortFunc(all, func(a, b volume.Export) int { return strings.Compare(a.String(), b.String()) })
	return all
}
