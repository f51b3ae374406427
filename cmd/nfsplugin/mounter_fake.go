//go:build fakemount

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
)

// fakeExportsEnv has the exports there are, as SERVER:/SHARE=DIR with a local
// directory, separated by commas.
const fakeExportsEnv = "NFSPLUGIN_FAKE_EXPORTS"

// newMounter is for tests of the whole program where there is no NFS: its mounts
// are symlinks. No image has it.
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
