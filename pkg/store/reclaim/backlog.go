package reclaim

import "github.com/nfs-csi/nfs-csi/pkg/volume"

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

// Backlog of every export that was scanned.
func (r *Reclaimer) Backlog() []Backlog {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Backlog
	for _, b := range r.backlog {
		all = append(all, *b)
	}
	return all
}

// Late returns the late trees of an export.
func (r *Reclaimer) Late(export volume.Export) Late {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.backlog[export]; b != nil {
		return b.Late
	}
	return Late{}
}

// count changes the backlog of an export.
func (r *Reclaimer) count(export volume.Export, change func(*Backlog)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.backlog[export]
	if b == nil {
		b = &Backlog{Export: export}
		r.backlog[export] = b
	}
	change(b)
}
