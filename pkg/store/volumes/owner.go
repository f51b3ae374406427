package volumes

import (
	"fmt"
	"maps"
	"path"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/catalog"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// SameRequest returns an error unless have, an existing record, satisfies the request for
// want.
//
// Errors: volume.ErrOwned, volume.ErrIncompatible.
func SameRequest(have, want catalog.Record, size SizeRange) error {
	switch {
	case have.Shared != want.Shared:
		return ownedSharedError(have, want)
	case have.Shared == catalog.SharedDirectory:
		return nil
	case have.Name != want.Name:
		return ownedError(have, want)
	case !maps.Equal(have.Parameters, want.Parameters):
		return fmt.Errorf("%w: the volume has the parameters %v, the request %v", volume.ErrIncompatible, have.Parameters, want.Parameters)
	case have.Source != want.Source:
		return fmt.Errorf("%w: the volume has the source %q, the request %q", volume.ErrIncompatible, have.Source, want.Source)
	case !size.Contains(have.Capacity):
		return fmt.Errorf("%w: the volume has %d bytes, the request needs %s", volume.ErrIncompatible, have.Capacity, size)
	}
	return nil
}

// ownedError returns volume.ErrOwned with the owner, have, and what the user of want can
// do.
func ownedError(have, want catalog.Record) error {
	of := "volume " + have.Name
	if claim := have.Claim(); claim != "" {
		of += " of the claim " + claim
	}
	if have.ClusterID != "" && have.ClusterID != want.ClusterID {
		of += fmt.Sprintf(" in the cluster %q", have.ClusterID)
	}
	return fmt.Errorf("%w: the directory %s belongs to %s%s", volume.ErrOwned, have.SubDir, of, ownedHint(have, want))
}

// ownedSharedError is ownedError if only one of the two shares the directory.
func ownedSharedError(have, want catalog.Record) error {
	if want.Shared != "" {
		return fmt.Errorf("%w: the directory %s belongs to volume %s, but the class has shared: \"true\"; choose another subDir, or delete that volume",
			volume.ErrOwned, have.SubDir, have.Name)
	}
	return fmt.Errorf("%w: the directory %s is shared by classes with shared: \"true\"; choose another subDir",
		volume.ErrOwned, have.SubDir)
}

func ownedHint(have, want catalog.Record) string {
	template := want.Parameters[volume.KeySubDir]
	switch {
	case have.Claim() == "" || want.Claim() == "":
		return ""
	case have.Claim() == want.Claim():
		return releaseHint(have, want)
	case have.Parameters[volume.KeySubDir] != template:
		return ""
	case strings.Contains(template, "${"):
		return fmt.Sprintf("; subDir %q is the same directory for the claims %s and %s; ${pvc.metadata.namespace}/${pvc.metadata.name} is unique",
			template, have.Claim(), want.Claim())
	}
	return fmt.Sprintf("; subDir %q is the same directory for every claim", template)
}

// releaseHint says how a recreated claim gets its previous directory.
func releaseHint(have, want catalog.Record) string {
	record := path.Join(volume.MetaDir, catalog.RecordPath(have.SubDir))
	byHand := fmt.Sprintf("if nothing uses that volume any more, remove %s on the share to release the directory", record)
	if have.SameClaim(want) {
		return "; a class with reuse: claim hands it over to the recreated claim; or, " + byHand
	}
	if have.ClusterID == "" {
		return "; the volume was created without --cluster-id, so reuse: claim cannot identify its claim; " + byHand
	}
	return ""
}
