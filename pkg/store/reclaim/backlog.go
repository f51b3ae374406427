package reclaim

import (
	"sync"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Backlog is what is left of deleted volumes on an export, as far as known: the size
// of a tree shows while it is being removed.
type Backlog struct {
	Export volume.Export
	// Trees are deleted volumes, and what dead processes left, as of the last scan.
	Trees int64
	// Entries are files and directories that were found and have not been removed yet.
	Entries int64
	// Removed entries since the start.
	Removed int64
	// Late are those of Trees that are removed after all others.
	Late Late
}

// Late are trees that are removed after all others, by reason.
type Late struct {
	// Long have had many slices of time.
	Long int64
	// Written were being written to at the last attempt.
	Written int64
	// Refused contain something that the server refuses to remove.
	Refused int64
	// Left is one such entry and the server's error; empty if there is none.
	Left string
}

// backlogs of all exports that were scanned.
type backlogs struct {
	mu sync.Mutex
	by map[volume.Export]*Backlog
}

// Backlog of every export that was scanned.
func (b *backlogs) Backlog() []Backlog {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Backlog
	for _, one := range b.by {
		all = append(all, *one)
	}
	return all
}

// Late returns the late trees of an export.
func (b *backlogs) Late(export volume.Export) Late {
	b.mu.Lock()
	defer b.mu.Unlock()
	if one := b.by[export]; one != nil {
		return one.Late
	}
	return Late{}
}

func (b *backlogs) update(export volume.Export, change func(*Backlog)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by == nil {
		b.by = map[volume.Export]*Backlog{}
	}
	one := b.by[export]
	if one == nil {
		one = &Backlog{Export: export}
		b.by[export] = one
	}
	change(one)
}
