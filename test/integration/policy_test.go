package integration

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const policyMessage = "PersistentVolumes need the label owner"

// policy is a ValidatingAdmissionPolicy that takes no PersistentVolume of the
// world's classes without a label. The API server calls what it refuses Invalid.
type policy struct{ *world }

func (w *world) refuseVolumes() policy {
	w.Helper()
	p := w.refuse("persistentvolumes", fmt.Sprintf("!object.spec.storageClassName.startsWith(%q) || has(object.metadata.labels) && 'owner' in object.metadata.labels", w.name),
		admissionv1.Create)
	w.eventually("the API server refuses PersistentVolumes as invalid", func() error {
		probe := w.volumeOf("probe-"+w.name, "probe")
		probe.Labels = nil
		_, err := w.client.CoreV1().PersistentVolumes().Create(w.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return notInvalid(err)
	})
	return p
}

// refuseJournal does not admit the ConfigMaps of the world's journal.
func (w *world) refuseJournal() policy {
	w.Helper()
	p := w.refuse("configmaps", fmt.Sprintf("!object.metadata.name.startsWith(%q)", w.journal()+"."), admissionv1.Create, admissionv1.Update)
	w.eventually("the API server refuses ConfigMaps as invalid", func() error {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: w.journal() + ".probe"}}
		_, err := w.client.CoreV1().ConfigMaps(w.account.namespace).Create(w.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return notInvalid(err)
	})
	return p
}

func notInvalid(err error) error {
	if apierrors.IsInvalid(err) {
		return nil
	}
	return fmt.Errorf("it answers %w", err)
}

// refuse admits what the expression is true for.
func (w *world) refuse(resource, expression string, operations ...admissionv1.OperationType) policy {
	w.Helper()
	admission := w.client.AdmissionregistrationV1()
	rule := admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}}
	definition := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: w.name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: new(admissionv1.Fail),
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{Operations: operations, Rule: rule},
			}}},
			Validations: []admissionv1.Validation{{Expression: expression, Message: policyMessage}},
		},
	}
	if _, err := admission.ValidatingAdmissionPolicies().Create(w.Context(), definition, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: w.name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	if _, err := admission.ValidatingAdmissionPolicyBindings().Create(w.Context(), binding, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	p := policy{w}
	w.Cleanup(func() {
		if err := p.remove(context.Background()); err != nil {
			w.Error(err)
		}
	})
	return p
}

func (p policy) remove(ctx context.Context) error {
	admission := p.client.AdmissionregistrationV1()
	binding := admission.ValidatingAdmissionPolicyBindings().Delete(ctx, p.name, metav1.DeleteOptions{})
	definition := admission.ValidatingAdmissionPolicies().Delete(ctx, p.name, metav1.DeleteOptions{})
	ignored := func(err error) error {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	return errors.Join(ignored(binding), ignored(definition))
}

func (p policy) allow() {
	p.Helper()
	if err := p.remove(p.Context()); err != nil {
		p.Fatal(err)
	}
}

// awaitRefusals waits until the policy has refused that many more.
func (p policy) awaitRefusals(more int) {
	p.Helper()
	before, err := p.refusals()
	if err != nil {
		p.Fatal(err)
	}
	p.eventually(fmt.Sprintf("%d more PersistentVolumes are refused", more), func() error {
		now, err := p.refusals()
		if err == nil && now < before+more {
			err = fmt.Errorf("%d have been", now-before)
		}
		return err
	})
}

// refusals are counted by the API server itself.
func (p policy) refusals() (int, error) {
	metrics, err := p.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(p.Context())
	if err != nil {
		return 0, err
	}
	total := 0
	counter := regexp.MustCompile(`^apiserver_validating_admission_policy_check_total\{.*enforcement_action="deny",.*policy="` + p.name + `",.*\} (\d+)$`)
	for line := range strings.Lines(string(metrics)) {
		if match := counter.FindStringSubmatch(strings.TrimSpace(line)); match != nil {
			count, err := strconv.Atoi(match[1])
			if err != nil {
				return 0, err
			}
			total += count
		}
	}
	return total, nil
}

// volumeOf is a PersistentVolume for a volume of the world's driver, as somebody makes
// it who knows the policy.
func (w *world) volumeOf(name, handle string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"owner": "admin"}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Capacity:               gibibyte(),
			StorageClassName:       w.name,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: w.driverName, VolumeHandle: handle}},
		},
	}
}
