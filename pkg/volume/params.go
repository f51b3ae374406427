package volume

import (
	"fmt"
	"strings"
)

// Keys of StorageClass parameters and volumeAttributes, compared without case.
const (
	KeyServer           = "server"
	KeyShare            = "share"
	KeySubDir           = "subDir"
	KeyPathPattern      = "pathPattern" // nfs-subdir-external-provisioner's word for subDir
	KeyOnDelete         = "onDelete"
	KeyArchiveOnDelete  = "archiveOnDelete"
	KeyMountPermissions = "mountPermissions"
	KeyUID              = "uid"
	KeyGID              = "gid"
	KeyMode             = "mode"
	KeyAdopt            = "adopt"
	KeyReuse            = "reuse"
	KeyShared           = "shared"
	KeyMountOptions     = "mountOptions"

	// What the provisioner adds when it runs with --extra-create-metadata.
	KeyPVCName      = "csi.storage.k8s.io/pvc/name"
	KeyPVCNamespace = "csi.storage.k8s.io/pvc/namespace"
	KeyPVName       = "csi.storage.k8s.io/pv/name"

	// What kubelet adds where the CSIDriver has podInfoOnMount.
	KeyEphemeral = "csi.storage.k8s.io/ephemeral"
)

// Params are the parameters of a StorageClass.
type Params struct {
	Export Export
	// SubDir is a template, see ExpandSubDir; empty for a directory by the
	// volume's name.
	SubDir string
	// OnDelete and Mode are empty where the class leaves them to the driver.
	OnDelete OnDelete
	// Mode of a new directory, whether the class calls it mode or
	// mountPermissions; UID and GID own it, nil for whoever makes it.
	Mode     Mode
	UID, GID *uint32
	// NoAdopt refuses a directory that is there already and belongs to no volume.
	NoAdopt bool
	// Reuse gives a claim that is made again the directory of its volume before.
	Reuse bool
	// Shared gives all claims one directory, which none of them owns.
	Shared bool
	// Metadata holds what the provisioner told about the claim, by key. It does
	// not shape the volume but through SubDir.
	Metadata map[string]string
}

// ParseParams reads StorageClass parameters. Unknown keys are refused: a
// misspelt one must not become a volume that is not what was asked for.
func ParseParams(in map[string]string) (Params, error) {
	known := []string{
		KeyServer, KeyShare, KeySubDir, KeyPathPattern, KeyOnDelete, KeyArchiveOnDelete,
		KeyMountPermissions, KeyUID, KeyGID, KeyMode, KeyAdopt, KeyReuse, KeyShared, KeyPVCName, KeyPVCNamespace, KeyPVName,
	}
	values, err := foldKeys(in)
	if err != nil {
		return Params{}, err
	}
	if err := checkKnown(values, known, "parameter"); err != nil {
		return Params{}, err
	}
	p := Params{Metadata: map[string]string{}}
	for _, key := range []string{KeyPVCName, KeyPVCNamespace, KeyPVName} {
		if v, ok := values[key]; ok {
			p.Metadata[key] = v
		}
	}
	if p.Export, err = ParseExport(values[KeyServer], values[KeyShare]); err != nil {
		return Params{}, fmt.Errorf("parameters: %w", err)
	}
	if p.SubDir, err = parseSubDir(values); err != nil {
		return Params{}, err
	}
	if p.OnDelete, err = parsePolicy(values); err != nil {
		return Params{}, err
	}
	if err := p.parseOwnership(values); err != nil {
		return Params{}, err
	}
	if err := p.parseDirectory(values); err != nil {
		return Params{}, err
	}
	return p, nil
}

// Attributes are what a PV tells a node in volumeAttributes.
type Attributes struct {
	Export Export
	// SubDir is empty when a static PV names a whole export.
	SubDir string
	// MountOptions is a comma-separated list, as csi-driver-nfs has it.
	MountOptions string
	// Mode is what csi-driver-nfs gives the directory at each publish, from
	// mountPermissions; 0 where it leaves it.
	Mode Mode
}

// Context is what CreateVolume hands to the node.
func (a Attributes) Context() map[string]string {
	return map[string]string{KeyServer: a.Export.Server, KeyShare: a.Export.Share, KeySubDir: a.SubDir}
}

// ParseAttributes reads volumeAttributes. Unknown keys are ignored: kubelet and
// other components add their own.
func ParseAttributes(in map[string]string) (Attributes, error) {
	values, err := foldKeys(in)
	if err != nil {
		return Attributes{}, err
	}
	export, err := ParseExport(values[KeyServer], values[KeyShare])
	if err != nil {
		return Attributes{}, fmt.Errorf("volumeAttributes: %w", err)
	}
	a := Attributes{
		Export:       export,
		MountOptions: values[strings.ToLower(KeyMountOptions)],
		// Written by hand in static PVs, often with a slash in front.
		SubDir: strings.Trim(values[strings.ToLower(KeySubDir)], "/"),
	}
	if a.Mode, err = ParseMode(values[strings.ToLower(KeyMountPermissions)]); err != nil {
		return Attributes{}, fmt.Errorf("volumeAttributes: %s: %w", KeyMountPermissions, err)
	}
	if a.SubDir == "" {
		return a, nil
	}
	if a.SubDir, err = fillIn(a.SubDir, values); err == nil {
		err = CheckSubDir(a.SubDir)
	}
	if err != nil {
		return Attributes{}, fmt.Errorf("volumeAttributes: %w", err)
	}
	return a, nil
}

// IsEphemeral tells whether volumeAttributes were written by the author of a pod,
// and not by an administrator.
func IsEphemeral(in map[string]string) bool {
	for k, v := range in {
		if strings.EqualFold(k, KeyEphemeral) && strings.EqualFold(v, "true") {
			return true
		}
	}
	return false
}

// foldKeys lowers the keys and refuses a map in which that loses one.
func foldKeys(in map[string]string) (map[string]string, error) {
	out := make(map[string]string, len(in))
	for k, v := range in {
		key := strings.ToLower(k)
		if _, ok := out[key]; ok {
			return nil, fmt.Errorf("%w: key %q is given more than once", ErrInvalid, key)
		}
		out[key] = v
	}
	return out, nil
}
