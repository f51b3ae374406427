package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const refusal = "the end-to-end test takes no volumes yet"

// denyVolumes makes the API server refuse new volumes of the class, as invalid, until
// the function that it returns is called.
func (e *env) denyVolumes(class string) (allow func()) {
	e.t.Helper()
	fail := admissionv1.Fail
	policies := e.client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := e.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{
				ResourceRules: []admissionv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{admissionv1.Create},
						Rule: admissionv1.Rule{
							APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"persistentvolumes"},
						},
					},
				}},
			},
			Validations: []admissionv1.Validation{{
				Expression: fmt.Sprintf("object.spec.storageClassName != %q", class),
				Message:    refusal,
			}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        class,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	if _, err := policies.Create(e.t.Context(), policy, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	allow = func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := bindings.Delete(ctx, class, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			e.t.Errorf("delete policy binding: %v", err)
		}
		if err := policies.Delete(ctx, class, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			e.t.Errorf("delete policy: %v", err)
		}
	}
	e.t.Cleanup(allow)
	if _, err := bindings.Create(e.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	e.eventually("the API server refuses volumes", func(ctx context.Context) error {
		_, err := e.client.CoreV1().PersistentVolumes().Create(ctx, probeVolume(class), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return fmt.Errorf("it still takes them")
		}
		if !strings.Contains(err.Error(), refusal) {
			return err
		}
		return nil
	})
	return allow
}

// probeVolume is a valid volume that is never saved.
func probeVolume(class string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: class,
			Capacity:         corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(claimSize)},
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: class},
			},
		},
	}
}

// waitRefused waits until the API server has refused more volumes of the class
// than it had.
func (e *env) waitRefused(what, class string, had float64) {
	e.t.Helper()
	e.eventually(what, func(context.Context) error {
		if now := e.refusals(class); now <= had {
			return fmt.Errorf("%v refusals, as before", now)
		}
		return nil
	})
}

// refusals counts how often the API server has refused a volume of the class so
// far, by its own metrics.
func (e *env) refusals(class string) float64 {
	e.t.Helper()
	const metric = "apiserver_validating_admission_policy_check_total"
	raw, err := e.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	total := 0.0
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if !strings.HasPrefix(name, metric+"{") || !strings.Contains(name, fmt.Sprintf("policy=%q", class)) {
			continue
		}
		count, err := strconv.ParseFloat(value, 64)
		if err != nil {
			e.t.Fatalf("%s: %v", line, err)
		}
		total += count
	}
	return total
}
