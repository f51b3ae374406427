//go:build !fakemount

package main

import "github.com/nfs-csi/nfs-csi/pkg/nfsmount"

func newMounter() (nfsmount.Mounter, error) {
	return nfsmount.NewKernel(nfsmount.DefaultKernelConfig())
}
