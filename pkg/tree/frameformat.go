package tree

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// frame is what a walk keeps of a directory whose descriptors it closed to go on
// further down.
type frame struct {
	dirState
	name string // in the directory above; a walk that only reads leaves it out
	// again are names in it that have to be looked up again.
	again []retry
}

// dirState is the part of a frame that has a fixed size.
type dirState struct {
	ID   identity
	Next int64 // where its listing goes on
	Seen int64 // entries that its listing returned
	// Entries and Bytes below it that were copied.
	Entries, Bytes int64
	// What the copy of the directory gets when nothing changes it any more.
	Mode, UID, GID uint32
	Atim, Mtim     unix.Timespec
	Tries          uint8 // how often its name was looked up again
	// As in level.
	Ended, Cut, Incomplete bool
}

// identity of a file among those that exist at the same time.
type identity struct{ Dev, Ino uint64 }

func identityOf(st *unix.Stat_t) identity {
	return identity{uint64(st.Dev), st.Ino} //nolint:unconvert // not the same type on every platform
}

// retry is a name that has to be looked up again.
type retry struct {
	name  string
	tries uint8
}

var errBadFrame = errors.New("what was noted of a directory cannot be read back")

func (f *frame) append(b []byte) ([]byte, error) {
	b, err := binary.Append(b, binary.LittleEndian, &f.dirState)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadFrame, err)
	}
	b = appendString(b, f.name)
	for _, r := range f.again {
		b = append(appendString(b, r.name), r.tries)
	}
	return b, nil
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint16(b, uint16(len(s))), s...)
}

func parseFrame(b []byte) (frame, error) {
	var f frame
	n, err := binary.Decode(b, binary.LittleEndian, &f.dirState)
	if err != nil {
		return frame{}, fmt.Errorf("%w: %w", errBadFrame, err)
	}
	var ok bool
	f.name, b, ok = cutString(b[n:])
	for ok && len(b) > 0 {
		var r retry
		if r.name, b, ok = cutString(b); !ok || len(b) == 0 {
			return frame{}, errBadFrame
		}
		r.tries, b = b[0], b[1:]
		f.again = append(f.again, r)
	}
	if !ok {
		return frame{}, errBadFrame
	}
	return f, nil
}

func cutString(b []byte) (s string, rest []byte, ok bool) {
	const lengthSize = 2
	if len(b) < lengthSize {
		return "", nil, false
	}
	end := lengthSize + int(binary.LittleEndian.Uint16(b))
	if len(b) < end {
		return "", nil, false
	}
	return string(b[lengthSize:end]), b[end:], true
}
