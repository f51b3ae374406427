// Package rooms measures the coupling between the files of a Go package.
package rooms

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// manyParameters is the number of parameters from which a function is counted.
const manyParameters = 6

// Room has the measurements of one package without its tests.
type Room struct {
	Package string
	Files   int
	Lines   int
	// Types declared at package level.
	Types int
	// References is the sum, over all files, of the other files of the package whose
	// declarations the file uses.
	References int
	// Cycle is the number of files in the largest cycle of references, 0 if there
	// is none.
	Cycle int
	// Parameterized counts functions and methods with six or more parameters, without
	// the receiver.
	Parameterized int
}

// listed is a package in the output of `go list -json`.
type listed struct {
	ImportPath string
	Dir        string
	Export     string
	DepOnly    bool
	GoFiles    []string
}

// Measure measures the packages that match the patterns in the module at dir. It builds
// their imports, for the export data.
func Measure(ctx context.Context, dir string, patterns ...string) ([]Room, error) {
	packages, err := list(ctx, dir, patterns)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, runtime.Compiler, func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	var rooms []Room
	for _, p := range packages {
		if p.DepOnly {
			continue
		}
		room, err := measure(fset, imports, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		rooms = append(rooms, room)
	}
	slices.SortFunc(rooms, func(a, b Room) int { return strings.Compare(a.Package, b.Package) })
	return rooms, nil
}

func list(ctx context.Context, dir string, patterns []string) ([]listed, error) {
	args := []string{"list", "-deps", "-export", "-json=ImportPath,Dir,Export,DepOnly,GoFiles", "--"}
	cmd := exec.CommandContext(ctx, "go", append(args, patterns...)...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var packages []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages = append(packages, p)
	}
}

func measure(fset *token.FileSet, imports types.Importer, p listed) (Room, error) {
	room := Room{Package: p.ImportPath, Files: len(p.GoFiles)}
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return Room{}, err
		}
		files = append(files, file)
		room.Lines += fset.File(file.Pos()).LineCount()
		room.count(file)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, files, &info)
	if err != nil {
		return Room{}, err
	}
	refs := references{}
	for ident, object := range info.Uses {
		if object.Pkg() == pkg && object.Pos().IsValid() {
			refs.add(fset.File(ident.Pos()).Name(), fset.File(object.Pos()).Name())
		}
	}
	room.References, room.Cycle = refs.count(), refs.largestCycle()
	return room, nil
}

func (r *Room) count(file *ast.File) {
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Type.Params.NumFields() >= manyParameters {
				r.Parameterized++
			}
		case *ast.GenDecl:
			if d.Tok == token.TYPE {
				r.Types += len(d.Specs)
			}
		}
	}
}

// references maps a file to the other files of its package that it uses.
type references map[string]map[string]bool

func (r references) add(from, to string) {
	if from == to {
		return
	}
	if r[from] == nil {
		r[from] = map[string]bool{}
	}
	r[from][to] = true
}

func (r references) count() int {
	n := 0
	for _, others := range r {
		n += len(others)
	}
	return n
}

// largestCycle is the size of the largest strongly connected component of more than one
// file.
func (r references) largestCycle() int {
	reached := map[string]map[string]bool{}
	for file := range r {
		reached[file] = map[string]bool{}
		r.reach(file, reached[file])
	}
	largest := 0
	for file, others := range reached {
		size := 0
		for other := range others {
			if reached[other][file] {
				size++
			}
		}
		largest = max(largest, size)
	}
	return largest
}

func (r references) reach(file string, reached map[string]bool) {
	for other := range r[file] {
		if !reached[other] {
			reached[other] = true
			r.reach(other, reached)
		}
	}
}
