package tree

import (
	"fmt"
	"sync/atomic"
)

// Progress of a Copy. It is safe for concurrent use.
type Progress struct {
	bytes, entries           atomic.Int64
	totalBytes, totalEntries atomic.Int64
	gone, devices, unlinked  atomic.Int64
	moves                    atomic.Int64
	part                     atomic.Pointer[part]
}

// Bytes that have been copied.
func (p *Progress) Bytes() int64 { return p.bytes.Load() }

// Entries that have been copied: files, directories, links and the rest.
func (p *Progress) Entries() int64 { return p.entries.Load() }

// Gone counts entries that were removed before they could be copied.
func (p *Progress) Gone() int64 { return p.gone.Load() }

// Devices counts device nodes, which are skipped.
func (p *Progress) Devices() int64 { return p.devices.Load() }

// Unlinked counts hard links that became separate files, because the file was changed
// meanwhile or has reached the limit of links. Of very many it counts only some.
func (p *Progress) Unlinked() int64 { return p.unlinked.Load() }

// Moves returns a counter that changes as long as entries are visited and bytes are
// copied: a copy that hangs keeps its value.
func (p *Progress) Moves() int64 {
	n := p.moves.Load()
	if part := p.part.Load(); part != nil {
		n += part.progress.Moves()
	}
	return n
}

func (p *Progress) move() { p.moves.Add(1) }

// Reset zeroes the counters when the copy restarts.
func (p *Progress) Reset() {
	for _, n := range []*atomic.Int64{&p.bytes, &p.entries, &p.totalBytes, &p.totalEntries, &p.gone, &p.devices, &p.unlinked} {
		n.Store(0)
	}
}

// SetTotal sets how much there is to copy.
func (p *Progress) SetTotal(bytes, entries int64) {
	p.totalBytes.Store(bytes)
	p.totalEntries.Store(entries)
}

// Left returns how much is still to be copied, 0 if unknown.
func (p *Progress) Left() (bytes, entries int64) {
	if part := p.part.Load(); part != nil {
		return part.progress.Left()
	}
	return max(p.totalBytes.Load()-p.bytes.Load(), 0), max(p.totalEntries.Load()-p.entries.Load(), 0)
}

// String describes the progress, such as "41%, 1.2 of 2.9 GiB, 8123 files".
func (p *Progress) String() string {
	if part := p.part.Load(); part != nil {
		return part.String()
	}
	bytes, entries := p.Bytes(), p.Entries()
	total := p.totalBytes.Load()
	if total == 0 {
		return fmt.Sprintf("%s, %d files", size(bytes, bytes), entries)
	}
	total = max(total, bytes)
	return fmt.Sprintf("%d%%, %s of %s, %d files", bytes*100/total, number(bytes, total), size(total, total), entries)
}

// part is one of several trees that are copied in turn.
type part struct {
	n, of    int
	progress Progress
}

func (p *part) String() string { return fmt.Sprintf("%d of %d: %s", p.n, p.of, &p.progress) }

// Part starts the n-th of several parts of the work. Until the next one starts, p
// reports the progress of this one.
func (p *Progress) Part(n, of int) *Progress {
	next := &part{n: n, of: of}
	next.progress.moves.Store(p.Moves() + 1)
	p.part.Store(next)
	return &next.progress
}

func unit(n int64) (float64, string) {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	i, div := 0, 1.0
	for float64(n)/div >= 1000 && i < len(units)-1 {
		i, div = i+1, div*1024
	}
	return div, units[i]
}

func number(n, scale int64) string {
	div, name := unit(scale)
	if name == "B" {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%.1f", float64(n)/div)
}

func size(n, scale int64) string {
	_, name := unit(scale)
	return number(n, scale) + " " + name
}
