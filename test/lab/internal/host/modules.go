package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const umlModules = "/usr/lib/uml/modules"

// modules returns a directory with lib/modules/VERSION and its dependency map
// for the guest's kernel, made once in the cache: Debian ships the modules
// without the map, and modprobe wants one.
func modules(cache string) (string, error) {
	found, err := filepath.Glob(umlModules + "/*")
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("kernel modules: want one version in %s, found %v; `lab deps` installs it", umlModules, found)
	}
	version := filepath.Base(found[0])
	root := filepath.Join(cache, "uml-modules-"+version)
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	scratch, err := os.MkdirTemp(cache, "uml-modules-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(scratch)
	into := filepath.Join(scratch, "lib/modules", version)
	if err := os.CopyFS(into, os.DirFS(found[0])); err != nil {
		return "", fmt.Errorf("copy kernel modules: %w", err)
	}
	if out, err := exec.Command("depmod", "-b", scratch, version).CombinedOutput(); err != nil {
		return "", fmt.Errorf("depmod: %w: %s", err, out)
	}
	if err := os.Rename(scratch, root); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return root, nil
}
