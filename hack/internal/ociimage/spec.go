// Package ociimage packs files into an OCI image without a container engine: an image
// index, and an image of a single layer for each platform. The same files always give the
// same bytes, so that images can be compared by digest.
package ociimage

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// ErrSpec is wrapped by every error about an Image or its Specs, as opposed to errors of reading or
// writing files.
var ErrSpec = errors.New("invalid image")

// Entry is one file, symbolic link or directory of the image. Exactly one of
// Source, Link and Dir is set.
type Entry struct {
	// Path is absolute in the image.
	Path string
	// Source is the local file with the content.
	Source string
	// Link is the target of a symbolic link.
	Link string
	// Dir marks a directory.
	Dir bool
	// Mode are the permission bits; 0 means 0755.
	Mode fs.FileMode
}

// Spec is the content of an image for one architecture, and its configuration.
type Spec struct {
	Entries      []Entry
	Entrypoint   []string
	Cmd          []string
	Env          []string
	User         string
	Labels       map[string]string
	Architecture string
}

func (s Spec) platform() string { return imageOS + "/" + s.Architecture }

func (s Spec) validate() error {
	if s.Architecture == "" {
		return fmt.Errorf("%w: no architecture", ErrSpec)
	}
	seen := map[string]bool{}
	for _, e := range s.Entries {
		if err := e.validate(); err != nil {
			return err
		}
		if seen[e.Path] {
			return fmt.Errorf("%w: %s is given twice", ErrSpec, e.Path)
		}
		seen[e.Path] = true
	}
	return nil
}

func (e Entry) validate() error {
	if !strings.HasPrefix(e.Path, "/") || path.Clean(e.Path) != e.Path || e.Path == "/" {
		return fmt.Errorf("%w: %q is not a clean absolute path below /", ErrSpec, e.Path)
	}
	kinds := 0
	for _, is := range []bool{e.Source != "", e.Link != "", e.Dir} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return fmt.Errorf("%w: %s must be one of file, link and directory", ErrSpec, e.Path)
	}
	return nil
}
