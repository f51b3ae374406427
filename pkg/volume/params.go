package volume

import (
	"fmt"
	"strings"
)

// Keys of StorageClass parameters and volumeAttributes, compared without case. One that
// makes another volume of the same name is part of Params.Shape as well.
const (
	KeyServer           = "server"
	KeyShare            = "share"
	KeySubDir           = "subDir"
	KeyPathPattern      = "pathPattern" // subDir in nfs-subdir-external-provisioner
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

	// Added by the provisioner with --extra-create-metadata.
	KeyPVCName      = "csi.storage.k8s.io/pvc/name"
	KeyPVCNamespace = "csi.storage.k8s.io/pvc/namespace"
	KeyPVName       = "csi.storage.k8s.io/pv/name"

	// Added by kubelet if the CSIDriver has podInfoOnMount.
	KeyEphemeral = "csi.storage.k8s.io/ephemeral"
)

// Params are the parameters of a StorageClass.
type Params struct {
	Export Export
	// SubDir is a template, see ExpandSubDir; empty for a directory with the volume's
	// name.
	SubDir string
	// OnDelete and Mode are empty if the class leaves them to the driver.
	OnDelete OnDelete
	// Mode of a new directory, from mode or mountPermissions. UID and GID are its owner,
	// nil for the identity that creates it.
	Mode     Mode
	UID, GID *uint32
	// NoAdopt refuses an existing directory that belongs to no volume.
	NoAdopt bool
	// Reuse gives a recreated claim the directory of its previous volume.
	Reuse bool
	// Shared gives all claims one directory, which none of them owns.
	Shared bool
	// Metadata of the claim from the provisioner, by key. It affects the volume only
	// through SubDir.
	Metadata map[string]string
}

// ParseParams reads StorageClass parameters. Unknown keys are refused: a typo must not
// silently give a different volume.
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

// Attributes are the volumeAttributes of a PV.
type Attributes struct {
	Export Export
	// SubDir is empty when a static PV names a whole export.
	SubDir string
	// MountOptions is a comma-separated list, as in csi-driver-nfs.
	MountOptions string
	// Mode comes from mountPermissions, which csi-driver-nfs applies to the directory at
	// each publish; 0 to leave it.
	Mode Mode
}

// Context returns the volume_context of a new volume: the parameters of its class as they
// are written, as in csi-driver-nfs, with subDir expanded. It lacks mountPermissions, which
// csi-driver-nfs would apply at every publish: the mode is set once and can be modified.
func (a Attributes) Context(class map[string]string) map[string]string {
	context := map[string]string{KeyServer: a.Export.Server, KeyShare: a.Export.Share}
	subDir := strings.ToLower(KeySubDir)
	for key, value := range class {
		switch folded := strings.ToLower(key); folded {
		case strings.ToLower(KeySubDir):
			subDir = key
			continue
		case strings.ToLower(KeyPathPattern), strings.ToLower(KeyMountPermissions):
			continue
		case KeyPVCName, KeyPVCNamespace, KeyPVName:
			if strings.Contains(a.SubDir, "${") {
				continue // a directory of that literal name: ParseAttributes must not expand it
			}
		default:
			delete(context, folded)
		}
		context[key] = value
	}
	context[subDir] = a.SubDir
	return context
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

// IsEphemeral tells whether volumeAttributes come from the author of a pod instead of
// an administrator.
func IsEphemeral(in map[string]string) bool {
	for k, v := range in {
		if strings.EqualFold(k, KeyEphemeral) && strings.EqualFold(v, "true") {
			return true
		}
	}
	return false
}

// foldKeys lowercases the keys. Keys that differ only in case are refused.
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
