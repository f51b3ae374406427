package tree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	// spillBlock is how many bytes of frames are moved to the spill file at a time; at
	// most twice as many are in memory.
	spillBlock = 256 << 10
	// framesInMemory bounds the frames of a walk without a spill file. Without names
	// that is enough for more than 100,000 levels.
	framesInMemory = 16 << 20
)

var errTooDeep = errors.New("directories are nested too deeply")

// frames is a stack with a bounded part in memory and the rest in a file.
type frames struct {
	// spill makes the file; nil keeps everything in memory, up to framesInMemory.
	spill func() (*os.File, error)

	depth  int
	buf    []byte // each frame between two copies of its length
	file   *os.File
	blocks []uint32 // sizes of the blocks in the file, in order
	end    int64    // of the file
}

const lengthSize = 4

func (s *frames) push(f *frame) error {
	start := len(s.buf)
	s.buf = binary.LittleEndian.AppendUint32(s.buf, 0)
	b, err := f.append(s.buf)
	if err != nil {
		return err
	}
	s.buf = b
	size := uint32(len(s.buf) - start - lengthSize)
	binary.LittleEndian.PutUint32(s.buf[start:], size)
	s.buf = binary.LittleEndian.AppendUint32(s.buf, size)
	s.depth++
	if s.spill == nil {
		if len(s.buf) > framesInMemory {
			return fmt.Errorf("%w: more than %d levels", errTooDeep, s.depth)
		}
		return nil
	}
	if len(s.buf) >= 2*spillBlock {
		return s.spillOldest()
	}
	return nil
}

// spillOldest moves the older half of the buffer to the file. The other half stays, so
// that a walk that goes up and down does not write and read all the time.
func (s *frames) spillOldest() error {
	end := 0
	for end < spillBlock {
		end += int(binary.LittleEndian.Uint32(s.buf[end:])) + 2*lengthSize
	}
	if s.file == nil {
		f, err := s.spill()
		if err != nil {
			return err
		}
		s.file = f
	}
	if _, err := s.file.WriteAt(s.buf[:end], s.end); err != nil {
		return err
	}
	s.blocks = append(s.blocks, uint32(end))
	s.end += int64(end)
	s.buf = append(s.buf[:0], s.buf[end:]...)
	return nil
}

// pop removes and returns the frame that was pushed last.
func (s *frames) pop() (frame, error) {
	if len(s.buf) == 0 && len(s.blocks) > 0 {
		last := int64(s.blocks[len(s.blocks)-1])
		b, err := s.block(s.end-last, last)
		if err != nil {
			return frame{}, err
		}
		s.buf, s.end, s.blocks = b, s.end-last, s.blocks[:len(s.blocks)-1]
	}
	if s.depth == 0 {
		return frame{}, io.EOF
	}
	rest := len(s.buf) - lengthSize
	if rest < lengthSize {
		return frame{}, errBadFrame
	}
	start := rest - int(binary.LittleEndian.Uint32(s.buf[rest:]))
	if start < lengthSize {
		return frame{}, errBadFrame
	}
	f, err := parseFrame(s.buf[start:rest])
	s.buf = s.buf[:start-lengthSize]
	s.depth--
	return f, err
}

func (s *frames) block(at, size int64) ([]byte, error) {
	b := make([]byte, size, 2*spillBlock)
	_, err := s.file.ReadAt(b, at)
	return b, err
}

// each calls do with every frame, oldest first, as long as it returns true.
func (s *frames) each(do func(*frame) (bool, error)) error {
	at := int64(0)
	for _, size := range s.blocks {
		b, err := s.block(at, int64(size))
		if err != nil {
			return err
		}
		if more, err := eachOf(b, do); err != nil || !more {
			return err
		}
		at += int64(size)
	}
	_, err := eachOf(s.buf, do)
	return err
}

func eachOf(b []byte, do func(*frame) (bool, error)) (more bool, err error) {
	for len(b) > 0 {
		if len(b) < lengthSize {
			return false, errBadFrame
		}
		end := lengthSize + int(binary.LittleEndian.Uint32(b))
		if len(b) < end+lengthSize {
			return false, errBadFrame
		}
		f, err := parseFrame(b[lengthSize:end])
		if err != nil {
			return false, err
		}
		if more, err := do(&f); err != nil || !more {
			return false, err
		}
		b = b[end+lengthSize:]
	}
	return true, nil
}

func (s *frames) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
