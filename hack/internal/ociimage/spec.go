// Package ociimage packs files into a single-layer OCI image without a container
// engine. The same Spec always gives the same bytes, so that an image can be
// compared by digest.
package ociimage

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// ErrSpec is wrapped by every error about the Spec, as opposed to errors of reading or
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

// Spec is the content of an image and its configuration.
type Spec struct {
	// Names are full references such as ghcr.io/nfs-csi/nfsplugin:v0.1.0. They are used
	// unchanged: nodes look up the image by them.
	Names        []string
	Entries      []Entry
	Entrypoint   []string
	Cmd          []string
	Env          []string
	User         string
	Labels       map[string]string
	Architecture string
}

func (s Spec) validate() error {
	if len(s.Names) == 0 {
		return fmt.Errorf("%w: no name", ErrSpec)
	}
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
