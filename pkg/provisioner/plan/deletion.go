package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

const (
	deletionSecretNameAnnotation      = "volume.kubernetes.io/provisioner-deletion-secret-name"
	deletionSecretNamespaceAnnotation = "volume.kubernetes.io/provisioner-deletion-secret-namespace"
)

// DeletionSecretNamedBy says what names a deletion secret: known is the result of
// DeletionSecret.
func DeletionSecretNamedBy(known bool) string {
	if known {
		return fmt.Sprintf("the PersistentVolume's annotations %s and %s", deletionSecretNameAnnotation, deletionSecretNamespaceAnnotation)
	}
	return "its StorageClass"
}

// DeletionSecret is the secret that the deletion of a volume needs, zero for none.
// known is false if the volume does not say, which old ones do not; then
// ClassDeletionSecret applies.
func DeletionSecret(volume *corev1.PersistentVolume) (secret SecretRef, known bool, err error) {
	name, hasName := volume.Annotations[deletionSecretNameAnnotation]
	namespace, hasNamespace := volume.Annotations[deletionSecretNamespaceAnnotation]
	switch {
	case !hasName && !hasNamespace:
		return SecretRef{}, false, nil
	case name == "" && namespace == "":
		return SecretRef{}, true, nil
	case name == "" || namespace == "":
		return SecretRef{}, false, fmt.Errorf("%w: annotations %s=%q and %s=%q must both be set or both be empty", ErrVolume,
			deletionSecretNameAnnotation, name, deletionSecretNamespaceAnnotation, namespace)
	}
	return SecretRef{Namespace: namespace, Name: name}, true, nil
}

// ClassDeletionSecret is the provisioner secret of the volume's class. Tokens that
// need more than the claim's name cannot be resolved any more.
func ClassDeletionSecret(parameters map[string]string, volume *corev1.PersistentVolume) (SecretRef, error) {
	class, err := ParseClass(parameters)
	if err != nil {
		return SecretRef{}, err
	}
	subject := Subject{PVName: volume.Name}
	if claim := volume.Spec.ClaimRef; claim != nil {
		subject.ClaimNamespace, subject.ClaimName = claim.Namespace, claim.Name
	}
	return class.Secret(ProvisionerSecret, subject)
}
