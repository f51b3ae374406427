//go:build fakemount

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
)

// fakeExportsEnv names the environment variable with the exports: a comma-separated list
// of SERVER:/SHARE=DIR, where DIR is a local directory.
const fakeExportsEnv = "NFSPLUGIN_FAKE_EXPORTS"

// newMounter is for tests of the whole program without NFS: its mounts are symlinks. No
// image contains it.
func newMounter() (nfsmount.Mounter, error) {
	mounter := nfsmounttest.NewFake()
	for _, text := range strings.Split(os.Getenv(fakeExportsEnv), ",") {
		name, dir, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("%s: %q is not SERVER:/SHARE=DIR", fakeExportsEnv, text)
		}
		exports, err := parseExports([]string{name})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fakeExportsEnv, err)
		}
		mounter.AddExport(exports[0], dir)
	}
	return mounter, nil
}
