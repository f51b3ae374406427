package catalog

import "github.com/nfs-csi/nfs-csi/pkg/volume"

// Claim that the volume was made for, as namespace/name; empty where nobody has told.
// Kubernetes has neither with a slash.
func (r Record) Claim() string {
	namespace, name := r.Metadata[volume.KeyPVCNamespace], r.Metadata[volume.KeyPVCName]
	if namespace == "" || name == "" {
		return ""
	}
	return namespace + "/" + name
}

// SameClaim tells whether both are volumes of one claim of one cluster, as far as is
// known for sure.
func (r Record) SameClaim(other Record) bool {
	return r.Claim() != "" && r.Claim() == other.Claim() && r.ClusterID != "" && r.ClusterID == other.ClusterID
}
