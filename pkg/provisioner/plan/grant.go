package plan

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Grant is the part of a ReferenceGrant (gateway.networking.k8s.io) that is used. It
// is in the namespace that it grants access to.
type Grant struct {
	Spec GrantSpec `json:"spec"`
}

// GrantSpec is the spec of a Grant.
type GrantSpec struct {
	From []GrantFrom `json:"from"`
	To   []GrantTo   `json:"to"`
}

// GrantFrom is a kind that may refer.
type GrantFrom struct {
	Group     string `json:"group"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
}

// GrantTo is what may be referred to; without a name, everything of the kind.
type GrantTo struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
	Name  string `json:"name,omitempty"`
}

// CheckGrants decides whether a claim may use an origin in another namespace, which
// has these grants.
func CheckGrants(origin Origin, claim *corev1.PersistentVolumeClaim, grants []Grant) error {
	for _, grant := range grants {
		if grant.Spec.allowsFrom(claim.Namespace) && grant.Spec.allowsTo(origin) {
			return nil
		}
	}
	return fmt.Errorf("%w: %s is in another namespace, and no ReferenceGrant there allows PersistentVolumeClaims of namespace %s to refer to it",
		ErrSource, origin, claim.Namespace)
}

func (s GrantSpec) allowsFrom(namespace string) bool {
	return slices.Contains(s.From, GrantFrom{Group: "", Kind: string(ClaimOrigin), Namespace: namespace})
}

func (s GrantSpec) allowsTo(origin Origin) bool {
	return slices.ContainsFunc(s.To, func(to GrantTo) bool {
		return to.Group == origin.Group() && to.Kind == string(origin.Kind) && (to.Name == "" || to.Name == origin.Name)
	})
}
