// Package ptrace builds the ptrace(2) that the guest's kernel runs with: User Mode
// Linux passes PTRACE_SETREGSET a register set that is shorter than that of newer
// processors, which their kernels refuse.
package ptrace

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed preload/ptrace.c
var source []byte

const compiler = "gcc"

// Library returns the path of a shared library whose ptrace is called instead of the
// C library's where LD_PRELOAD names it (ld.so(8)). It is compiled into dir unless
// that has it, from this source by this compiler.
func Library(ctx context.Context, dir string) (string, error) {
	version, err := exec.CommandContext(ctx, compiler, "-dumpfullversion", "-dumpmachine").Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w; `lab deps` installs it", compiler, err)
	}
	key := sha256.Sum256(append(version, source...))
	library := filepath.Join(dir, "ptrace-"+hex.EncodeToString(key[:])[:12]+".so")
	if strings.ContainsAny(library, " :") {
		return "", fmt.Errorf("LD_PRELOAD cannot carry %q: no blanks or colons in the path of the lab's cache", library)
	}
	if _, err := os.Stat(library); err == nil {
		return library, nil
	}
	return library, compile(ctx, library)
}

// compile leaves a whole library at the path or none, whoever else compiles it.
func compile(ctx context.Context, library string) error {
	scratch, err := os.MkdirTemp(filepath.Dir(library), "ptrace-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	from, made := filepath.Join(scratch, "ptrace.c"), filepath.Join(scratch, "ptrace.so")
	if err := os.WriteFile(from, source, 0o600); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", made, from).CombinedOutput()
	if err != nil {
		return fmt.Errorf("compile the guest's ptrace: %w: %s", err, out)
	}
	return os.Rename(made, library)
}
