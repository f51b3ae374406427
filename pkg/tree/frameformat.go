package tree

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// frame is what a walk keeps of a directory whose descriptors it closed to descend
// further.
type frame struct {
	dirState
	name string // in the directory above; empty without walker.keepNames
	// retries are names in it that have to be looked up again.
	retries []retry
}

// dirState is the part of a frame that has a fixed size.
type dirState struct {
	ID   identity
	Next int64 // offset of its listing
	Seen int64 // entries that its listing returned
	// Entries and Bytes that were copied below it.
	Entries, Bytes int64
	// Attributes of the copy, which are set last.
	Mode, UID, GID uint32
	Atim, Mtim     unix.Timespec
	Tries          uint8 // how often its name was looked up again
	// As in level.
	Ended, Missed, Incomplete bool
}

// identity tells files apart that exist at the same time.
type identity struct{ Dev, Ino uint64 }

func identityOf(st *unix.Stat_t) identity {
	return identity{uint64(st.Dev), st.Ino} //nolint:unconvert // not the same type on every platform
}

// retry is a name that has to be looked up again.
type retry struct {
	name  string
	tries uint8
}

var errBadFrame = errors.New("the saved state of a directory cannot be read back")

func (f *frame) append(b []byte) ([]byte, error) {
	b, err := binary.Append(b, binary.LittleEndian, &f.dirState)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errBadFrame, err)
	}
	b = appendString(b, f.name)
	for _, r := range f.retries {
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
		f.retries = append(f.retries, r)
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
