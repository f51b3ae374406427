package parity

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/nfs-csi/nfs-csi/test/chart"
	"github.com/nfs-csi/nfs-csi/test/manifests"
)

const (
	chartDir = "../../../deploy/helm/nfs-csi"
	// shippedAccount is csi-provisioner's in the chart; shippedDriver is the driver's name
	// there, as in names of objects.
	shippedAccount = "nfs-csi-controller"
	shippedDriver  = "nfs-csi-internal"
	// secretsRole is not bound there.
	secretsRole = "nfs-csi-provisioner-secrets"
)

// permissions are rules by what needs them; "" is needed always.
type permissions struct {
	cluster, namespaced map[string][]rbacv1.PolicyRule
	// claims are for the namespace of the claims.
	claims map[string][]rbacv1.PolicyRule
}

// originalPermissions are those of external-provisioner's manifests.
func originalPermissions(path string) (permissions, error) {
	var rules struct {
		Cluster    map[string][]rbacv1.PolicyRule `json:"cluster"`
		Namespaced map[string][]rbacv1.PolicyRule `json:"namespaced"`
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return permissions{}, err
	}
	err = yaml.UnmarshalStrict(text, &rules)
	return permissions{cluster: rules.Cluster, namespaced: rules.Namespaced}, err
}

// shippedPermissions are those of the chart: with its defaults, and what values for a need
// add to them.
func shippedPermissions() (permissions, error) {
	p := permissions{cluster: map[string][]rbacv1.PolicyRule{}, namespaced: map[string][]rbacv1.PolicyRule{}, claims: map[string][]rbacv1.PolicyRule{}}
	values := map[string]string{"attach": "rbac: {attach: true}", "topology": "rbac: {topology: true}", "capacity": "capacity: {enabled: true}"}
	for _, need := range []string{"", "attach", "topology", "capacity"} {
		shipped, err := render(values[need])
		if err != nil {
			return p, err
		}
		for _, binding := range shipped.clusterBindings {
			p.cluster[need] = append(p.cluster[need], shipped.clusterRoles[binding]...)
		}
		for _, binding := range shipped.bindings {
			p.namespaced[need] = append(p.namespaced[need], shipped.roles[binding]...)
		}
		if need == "" {
			p.claims["secrets"] = shipped.clusterRoles[secretsRole]
			continue
		}
		p.cluster[need] = added(p.cluster[""], p.cluster[need])
		p.namespaced[need] = added(p.namespaced[""], p.namespaced[need])
	}
	if len(p.cluster[""]) == 0 || len(p.namespaced[""]) == 0 || len(p.claims["secrets"]) == 0 {
		return p, fmt.Errorf("%s gives csi-provisioner no permissions: is its account %s?", chartDir, shippedAccount)
	}
	return p, nil
}

func added(base, all []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	return slices.DeleteFunc(all, func(rule rbacv1.PolicyRule) bool {
		return slices.ContainsFunc(base, func(other rbacv1.PolicyRule) bool { return sameJSON(rule, other) })
	})
}

// rendered are the roles of the chart, and those that are bound to the account.
type rendered struct {
	clusterRoles, roles       map[string][]rbacv1.PolicyRule
	clusterBindings, bindings []string
}

func render(values string) (rendered, error) {
	r := rendered{clusterRoles: map[string][]rbacv1.PolicyRule{}, roles: map[string][]rbacv1.PolicyRule{}}
	stream, err := chart.Manifests(chartDir, chart.Release{Name: "nfs-csi", Namespace: "nfs-csi"}, values)
	if err != nil {
		return r, err
	}
	objects, err := manifests.Decode(stream)
	if err != nil {
		return r, err
	}
	for _, object := range objects {
		switch object.GetKind() {
		case "ClusterRole", "Role":
			var role rbacv1.Role
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &role); err != nil {
				return r, err
			}
			if role.Kind == "Role" {
				r.roles[role.Name] = role.Rules
			} else {
				r.clusterRoles[role.Name] = role.Rules
			}
		case "ClusterRoleBinding", "RoleBinding":
			var binding rbacv1.RoleBinding
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &binding); err != nil {
				return r, err
			}
			if !slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool { return s.Name == shippedAccount }) {
				continue
			}
			if binding.Kind == "RoleBinding" {
				r.bindings = append(r.bindings, binding.RoleRef.Name)
			} else {
				r.clusterBindings = append(r.clusterBindings, binding.RoleRef.Name)
			}
		}
	}
	return r, nil
}

// of are the rules of a scenario. Where they name objects, those are the scenario's.
func (w *world) of(rules map[string][]rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var all []rbacv1.PolicyRule
	for _, need := range append([]string{""}, w.Needs...) {
		for _, rule := range rules[need] {
			rule = *rule.DeepCopy()
			for i, name := range rule.ResourceNames {
				name = strings.Replace(name, shippedDriver, strings.ReplaceAll(w.driverName, ".", "-"), 1)
				rule.ResourceNames[i] = name
				// Of --node-deployment, docs/topology.md.
				rule.ResourceNames = append(rule.ResourceNames, name+"."+w.id+"-node")
			}
			all = append(all, rule)
		}
	}
	return all
}

// grant makes roles for the scenario and binds them to its account.
func (p permissions) grant(ctx context.Context, w *world) error {
	rbac := w.client.RbacV1()
	meta := metav1.ObjectMeta{Name: w.id}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.system(), Name: account}}
	if _, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: w.of(p.cluster)}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: w.id},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	for namespace, rules := range map[string][]rbacv1.PolicyRule{w.system(): w.of(p.namespaced), w.id: w.of(p.claims)} {
		if len(rules) == 0 {
			continue
		}
		if _, err := rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{}); err != nil {
			return err
		}
		if _, err := rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: w.id},
		}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}
