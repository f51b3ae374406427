package tree

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/nfs-csi/nfs-csi/pkg/fsat"
)

// scratch is the directory of CopyOptions.Scratch, made on first use.
type scratch struct {
	make func() (*os.Root, error)

	mu   sync.Mutex
	root *os.Root
	fd   int
	made int // files
}

func (s *scratch) open() error {
	if s.root != nil {
		return nil
	}
	root, err := s.make()
	if err != nil {
		return err
	}
	if s.fd, err = fsat.OpenRoot(root); err != nil {
		root.Close()
		return err
	}
	s.root = root
	return nil
}

// dir returns its descriptor, valid until close.
func (s *scratch) dir() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.open()
	return s.fd, err
}

// file creates a file in it, for what does not fit into memory.
func (s *scratch) file() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.open(); err != nil {
		return nil, err
	}
	s.made++
	return s.root.OpenFile(fmt.Sprintf("levels-%d", s.made), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

func (s *scratch) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.root == nil {
		return nil
	}
	return errors.Join(unix.Close(s.fd), s.root.Close())
}
