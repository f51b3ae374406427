package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/sys/unix"
)

// kubeSource is the module of the multi-call binary, below the repository.
const kubeSource = "test/lab/kube"

// BuildKube returns the path of the Kubernetes programs, built if the cache does
// not have them for just these sources and this Go.
func BuildKube(ctx context.Context, cache string) (string, error) {
	source, err := findUp(kubeSource)
	if err != nil {
		return "", err
	}
	version, err := kubernetesVersion(source)
	if err != nil {
		return "", err
	}
	key, err := hashFiles(source, "go.mod", "go.sum", "main.go")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(cache, "kube-"+version+"-"+key, "kube")
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return "", err
	}
	// Another lab may be building it.
	unlock, err := lock(filepath.Join(filepath.Dir(binary), "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	fmt.Fprintf(os.Stderr, "lab: building Kubernetes %s, once: 4 to 6 minutes on 2 cores\n", version)
	made := binary + ".new"
	build := goBuild{
		name: "Kubernetes " + version, dir: source, out: made,
		flags: []string{"-trimpath", "-ldflags=-s -w -X k8s.io/component-base/version.gitVersion=" + version},
		log:   filepath.Join(filepath.Dir(binary), "build.log"), every: 10 * time.Second,
	}
	if err := build.run(ctx, os.Stderr); err != nil {
		return "", err
	}
	return binary, os.Rename(made, binary)
}

// lock waits for a file's lock, which goes with the process at the latest.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { f.Close() }, nil
}

// findUp looks for a path in the working directory and above it.
func findUp(path string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		found := filepath.Join(at, path)
		if _, err := os.Stat(found); err == nil {
			return found, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no %s in %s or above it: run the lab from within the repository", path, dir)
		}
	}
}

// repository is the root of the checkout that dir is in, or dir itself.
func repository(dir string) string {
	if source, err := findUp(kubeSource); err == nil {
		return strings.TrimSuffix(source, "/"+kubeSource)
	}
	return dir
}

func kubernetesVersion(source string) (string, error) {
	path := filepath.Join(source, "go.mod")
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	mod, err := modfile.ParseLax(path, data, nil)
	if err != nil {
		return "", err
	}
	for _, r := range mod.Require {
		if r.Mod.Path == "k8s.io/kubernetes" {
			return r.Mod.Version, nil
		}
	}
	return "", errors.New(path + " does not require k8s.io/kubernetes")
}

func hashFiles(dir string, names ...string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version())
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, name, len(data))
		h.Write(data)
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// imagesDir is where `make lab-images` leaves the archives, below the repository.
const imagesDir = "bin/images"

// ImageArchives lists the archives that a node imports: those in the directories,
// or in the repository's when none is given.
func ImageArchives(dirs ...string) ([]string, error) {
	if len(dirs) == 0 {
		dir, err := findUp(imagesDir)
		if err != nil {
			return nil, fmt.Errorf("%w; `make lab-images` packs the images there", err)
		}
		dirs = []string{dir}
	}
	var archives []string
	for _, dir := range dirs {
		found, err := archivesIn(dir)
		if err != nil {
			return nil, err
		}
		archives = append(archives, found...)
	}
	return archives, nil
}

func archivesIn(dir string) ([]string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	found, err := filepath.Glob(strings.ReplaceAll(dir, "*", `\*`) + "/*.tar")
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("no image archives (*.tar) in %s: `make lab-images` packs them", dir)
	}
	return found, err
}
