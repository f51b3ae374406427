package plan

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Purpose of a secret in a StorageClass.
type Purpose string

// The purposes of secrets. The parameters of a StorageClass are
// csi.storage.k8s.io/<purpose>-name and csi.storage.k8s.io/<purpose>-namespace.
const (
	ProvisionerSecret       Purpose = "provisioner-secret"
	ControllerPublishSecret Purpose = "controller-publish-secret"
	NodeStageSecret         Purpose = "node-stage-secret"
	NodePublishSecret       Purpose = "node-publish-secret"
	ControllerExpandSecret  Purpose = "controller-expand-secret"
	NodeExpandSecret        Purpose = "node-expand-secret"
	ControllerModifySecret  Purpose = "controller-modify-secret"

	// defaultSecret applies to every purpose without a pair of its own.
	defaultSecret Purpose = "secret"
)

func purposes() []Purpose {
	return []Purpose{
		ProvisionerSecret, ControllerPublishSecret, NodeStageSecret, NodePublishSecret,
		ControllerExpandSecret, NodeExpandSecret, ControllerModifySecret,
	}
}

// secretPairs are the purposes, and the default, that parameters name secrets for.
func secretPairs() []Purpose { return append(purposes(), defaultSecret) }

func (p Purpose) nameKey() string      { return reservedPrefix + string(p) + "-name" }
func (p Purpose) namespaceKey() string { return reservedPrefix + string(p) + "-namespace" }

// deprecatedKeys are the keys from before csi.storage.k8s.io/. They are also passed to
// the driver, as external-provisioner does.
func (p Purpose) deprecatedKeys() (name, namespace string, found bool) {
	stems := map[Purpose]string{
		ProvisionerSecret:       "csiProvisionerSecret",
		ControllerPublishSecret: "csiControllerPublishSecret",
		NodeStageSecret:         "csiNodeStageSecret",
		NodePublishSecret:       "csiNodePublishSecret",
	}
	stem, found := stems[p]
	return stem + "Name", stem + "Namespace", found
}

// SecretRef names a secret.
type SecretRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// IsZero is true for no secret.
func (r SecretRef) IsZero() bool { return r == SecretRef{} }

// Reference converts to the form in a PersistentVolume, nil for zero.
func (r SecretRef) Reference() *corev1.SecretReference {
	if r.IsZero() {
		return nil
	}
	return &corev1.SecretReference{Namespace: r.Namespace, Name: r.Name}
}

// String is namespace/name.
func (r SecretRef) String() string { return r.Namespace + "/" + r.Name }

// secretTemplate is a pair of parameters before the expansion of tokens.
type secretTemplate struct {
	nameKey, namespaceKey string
	name, namespace       string
}

func (t secretTemplate) resolve(subject Subject) (SecretRef, error) {
	// Namespaces have fewer tokens, so that the author of a claim cannot choose the
	// secrets of any namespace.
	namespace, err := expand(t.namespace, subject.namespaceToken)
	if err != nil {
		return SecretRef{}, fmt.Errorf("%w: %s %q: %w", ErrClass, t.namespaceKey, t.namespace, err)
	}
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return SecretRef{}, fmt.Errorf("%w: %s %q expands to %q, which is not a valid namespace: %s",
			ErrClass, t.namespaceKey, t.namespace, namespace, strings.Join(problems, "; "))
	}
	name, err := expand(t.name, subject.nameToken)
	if err != nil {
		return SecretRef{}, fmt.Errorf("%w: %s %q: %w", ErrClass, t.nameKey, t.name, err)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return SecretRef{}, fmt.Errorf("%w: %s %q expands to %q, which is not a valid secret name: %s",
			ErrClass, t.nameKey, t.name, name, strings.Join(problems, "; "))
	}
	return SecretRef{Namespace: namespace, Name: name}, nil
}

func (s Subject) namespaceToken(token string) (string, error) {
	switch token {
	case "pv.name":
		return s.PVName, nil
	case "pvc.namespace":
		return s.ClaimNamespace, nil
	default:
		return "", fmt.Errorf("%w ${%s}, must be one of ${pv.name} and ${pvc.namespace}", errUnknownToken, token)
	}
}

func (s Subject) nameToken(token string) (string, error) {
	if token == "pvc.name" {
		return s.ClaimName, nil
	}
	if key, ok := mapKey(token, "pvc.annotations"); ok {
		return lookUp(s.Annotations, "annotation", key)
	}
	if value, err := s.namespaceToken(token); err == nil {
		return value, nil
	}
	return "", fmt.Errorf("%w ${%s}, must be one of ${pv.name}, ${pvc.namespace}, ${pvc.name} and ${pvc.annotations['KEY']}", errUnknownToken, token)
}
