package store

import (
	"fmt"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// Backlog is what is left of deleted volumes on an export, as far as it is known:
// how much is in a directory shows when it is being removed.
type Backlog struct {
	Export volume.Export
	// Trees are deleted volumes, and what dead processes left, at the last look.
	Trees int64
	// Entries are files and directories that have been found and not removed yet.
	Entries int64
	// Removed since the start.
	Removed int64
	// Late are those of Trees that are put last.
	Late Late
}

// Late are trees by why they are put last.
type Late struct {
	// Long have had many slices of time.
	Long int64
	// Written were being written to at the last look.
	Written int64
	// Refused have something that the server does not let the driver remove.
	Refused int64
	// Left is such an entry and what the server said; empty if there is none.
	Left string
}

// Backlog of every export that was looked at.
func (s *Store) Backlog() []Backlog {
	s.reclaim.mu.Lock()
	defer s.reclaim.mu.Unlock()
	var all []Backlog
	for _, b := range s.reclaim.backlog {
		all = append(all, *b)
	}
	return all
}

// count changes the backlog of an export.
func (r *reclaimer) count(export volume.Export, change func(*Backlog)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.backlog[export]
	if b == nil {
		b = &Backlog{Export: export}
		r.backlog[export] = b
	}
	change(b)
}

// lateOnes of a queue.
func (q *queue) lateOnes() Late {
	var l Late
	for _, d := range q.late {
		l.add(d)
	}
	if q.current != nil {
		l.add(q.current)
	}
	return l
}

func (l *Late) add(d *discarded) {
	switch d.late {
	case long:
		l.Long++
	case written:
		l.Written++
	case refused:
		l.Refused++
		if l.Left == "" {
			l.Left = d.why.Error()
		}
	}
}

// remains tells of deleted volumes of which something stays on the export until
// somebody does something about it.
func (r *reclaimer) remains(export volume.Export) []Condition {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.backlog[export]
	if b == nil || b.Late.Refused == 0 {
		return nil
	}
	return []Condition{{Degraded, "DeletedVolumesRemain", fmt.Sprintf("%d deleted volumes still take up space on the export. "+
		"The server refuses to remove %s. Remove it on the server, or give it to the user that the driver is there",
		b.Late.Refused, b.Late.Left)}}
}
