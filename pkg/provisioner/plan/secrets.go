package plan

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Purpose is what a secret named by a StorageClass is for.
type Purpose string

// The purposes a StorageClass can name a secret for: its parameters are
// csi.storage.k8s.io/<purpose>-name and csi.storage.k8s.io/<purpose>-namespace.
const (
	ProvisionerSecret       Purpose = "provisioner-secret"
	ControllerPublishSecret Purpose = "controller-publish-secret"
	NodeStageSecret         Purpose = "node-stage-secret"
	NodePublishSecret       Purpose = "node-publish-secret"
	ControllerExpandSecret  Purpose = "controller-expand-secret"
	NodeExpandSecret        Purpose = "node-expand-secret"
	ControllerModifySecret  Purpose = "controller-modify-secret"

	// defaultSecret stands in for every purpose that has no pair of its own.
	defaultSecret Purpose = "secret"
)

func purposes() []Purpose {
	return []Purpose{
		ProvisionerSecret, ControllerPublishSecret, NodeStageSecret, NodePublishSecret,
		ControllerExpandSecret, NodeExpandSecret, ControllerModifySecret,
	}
}

// secretPairs are all pairs of parameters that name a secret.
func secretPairs() []Purpose { return append(purposes(), defaultSecret) }

func (p Purpose) nameKey() string      { return reservedPrefix + string(p) + "-name" }
func (p Purpose) namespaceKey() string { return reservedPrefix + string(p) + "-namespace" }

// label is the purpose in a sentence.
func (p Purpose) label() string { return strings.ReplaceAll(string(p), "-", " ") }

// DescribeSecret tells which secret it is that is to be read, for which purpose,
// and who named it.
func DescribeSecret(purpose Purpose, ref SecretRef, namedBy string) string {
	return fmt.Sprintf("%s %s, named by %s", purpose.label(), ref, namedBy)
}

// SecretRef names a secret.
type SecretRef struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Reference is the form a PersistentVolume has it in; nil stays nil.
func (r *SecretRef) Reference() *corev1.SecretReference {
	if r == nil {
		return nil
	}
	return &corev1.SecretReference{Namespace: r.Namespace, Name: r.Name}
}

// String is namespace/name.
func (r SecretRef) String() string { return r.Namespace + "/" + r.Name }

// secretTemplate is a pair of parameters with their tokens not yet replaced.
type secretTemplate struct {
	name, namespace string
}

func (t secretTemplate) resolve(purpose Purpose, subject Subject) (*SecretRef, error) {
	// Namespaces take fewer tokens: one that a claim's author could choose would
	// let them point the driver at any namespace's secrets.
	namespace, err := expand(t.namespace, subject.namespaceToken)
	if err != nil {
		return nil, fmt.Errorf("%w: %s %q: %w", ErrClass, purpose.namespaceKey(), t.namespace, err)
	}
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return nil, fmt.Errorf("%w: %s %q expands to %q, which is not a valid namespace: %s",
			ErrClass, purpose.namespaceKey(), t.namespace, namespace, strings.Join(problems, "; "))
	}
	name, err := expand(t.name, subject.nameToken)
	if err != nil {
		return nil, fmt.Errorf("%w: %s %q: %w", ErrClass, purpose.nameKey(), t.name, err)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return nil, fmt.Errorf("%w: %s %q expands to %q, which is not a valid secret name: %s",
			ErrClass, purpose.nameKey(), t.name, name, strings.Join(problems, "; "))
	}
	return &SecretRef{Namespace: namespace, Name: name}, nil
}

func (s Subject) namespaceToken(token string) (string, error) {
	switch token {
	case "pv.name":
		return s.PVName, nil
	case "pvc.namespace":
		return s.ClaimNamespace, nil
	default:
		return "", fmt.Errorf("%w ${%s}, known are ${pv.name} and ${pvc.namespace}", errUnknownToken, token)
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
	return "", fmt.Errorf("%w ${%s}, known are ${pv.name}, ${pvc.namespace}, ${pvc.name} and ${pvc.annotations['KEY']}", errUnknownToken, token)
}
