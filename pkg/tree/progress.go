package tree

import (
	"fmt"
	"sync/atomic"
)

// Progress of a Copy, to be read at any time.
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

// Gone counts entries that went away before they could be copied.
func (p *Progress) Gone() int64 { return p.gone.Load() }

// Devices counts device nodes, which are left out.
func (p *Progress) Devices() int64 { return p.devices.Load() }

// Unlinked counts hard links that became files of their own, because the file was
// changed meanwhile or cannot have as many names. Of very many it counts some.
func (p *Progress) Unlinked() int64 { return p.unlinked.Load() }

// Moves tells whether there is any progress: it returns another value as long as
// entries are looked at and bytes are copied.
func (p *Progress) Moves() int64 {
	n := p.moves.Load()
	if part := p.part.Load(); part != nil {
		n += part.progress.Moves()
	}
	return n
}

func (p *Progress) move() { p.moves.Add(1) }

// Reset begins anew, as the copy does that it is of.
func (p *Progress) Reset() {
	for _, n := range []*atomic.Int64{&p.bytes, &p.entries, &p.totalBytes, &p.totalEntries, &p.gone, &p.devices, &p.unlinked} {
		n.Store(0)
	}
}

// SetTotal says how much there is to copy.
func (p *Progress) SetTotal(bytes, entries int64) {
	p.totalBytes.Store(bytes)
	p.totalEntries.Store(entries)
}

// Left is how much is still to be copied, as far as it is known.
func (p *Progress) Left() (bytes, entries int64) {
	if part := p.part.Load(); part != nil {
		return part.progress.Left()
	}
	return max(p.totalBytes.Load()-p.bytes.Load(), 0), max(p.totalEntries.Load()-p.entries.Load(), 0)
}

// String is the progress in words, such as "41%, 1.2 of 2.9 GiB, 8123 files".
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

// Part begins the n-th of the parts that the work consists of. Until the next one
// begins, p tells how far this one is.
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
