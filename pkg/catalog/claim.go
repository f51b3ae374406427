package catalog

import "github.com/nfs-csi/nfs-csi/pkg/volume"

// Claim that the volume was provisioned for, as namespace/name; empty if unknown.
// Neither name has a slash in Kubernetes.
func (r Record) Claim() string {
	namespace, name := r.Metadata[volume.KeyPVCNamespace], r.Metadata[volume.KeyPVCName]
	if namespace == "" || name == "" {
		return ""
	}
	return namespace + "/" + name
}

// SameClaim reports whether both are volumes of the same claim of the same cluster;
// false if either is unknown.
func (r Record) SameClaim(other Record) bool {
	return r.Claim() != "" && r.Claim() == other.Claim() && r.ClusterID != "" && r.ClusterID == other.ClusterID
}
