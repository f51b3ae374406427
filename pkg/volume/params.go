package volume

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Keys of StorageClass parameters and volumeAttributes, compared without case.
const (
	KeyServer       = "server"
	KeyShare        = "share"
	KeySubDir       = "subDir"
	KeyMountOptions = "mountOptions"

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
	// Metadata holds what the provisioner told about the claim, by key. It does
	// not shape the volume.
	Metadata map[string]string
}

// ParseParams reads StorageClass parameters. Unknown keys are refused: a
// misspelt one must not become a volume that is not what was asked for.
func ParseParams(in map[string]string) (Params, error) {
	known := []string{KeyServer, KeyShare, KeyPVCName, KeyPVCNamespace, KeyPVName}
	p := Params{Metadata: map[string]string{}}
	values, err := foldKeys(in)
	if err != nil {
		return Params{}, err
	}
	var server, share string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		switch v := values[key]; key {
		case KeyServer:
			server = v
		case KeyShare:
			share = v
		case KeyPVCName, KeyPVCNamespace, KeyPVName:
			p.Metadata[key] = v
		default:
			return Params{}, fmt.Errorf("%w: unknown parameter %q, known are %s", ErrInvalid, key, strings.Join(known, ", "))
		}
	}
	if p.Export, err = ParseExport(server, share); err != nil {
		return Params{}, fmt.Errorf("parameters: %w", err)
	}
	return p, nil
}

// Shape is the part of the parameters that makes two requests for one name the
// same request or not.
func (p Params) Shape() map[string]string {
	return map[string]string{KeyServer: p.Export.Server, KeyShare: p.Export.Share}
}

// Attributes are what a PV tells a node in volumeAttributes.
type Attributes struct {
	Export Export
	// SubDir is empty when a static PV names a whole export.
	SubDir string
	// MountOptions is a comma-separated list, as csi-driver-nfs has it.
	MountOptions string
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
	if a.SubDir != "" {
		if err := CheckSubDir(a.SubDir); err != nil {
			return Attributes{}, fmt.Errorf("volumeAttributes: %w", err)
		}
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
