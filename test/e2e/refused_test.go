package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRefusedClaims: a class that cannot work says why on the claim, makes
// nothing, and holds up nobody.
func TestRefusedClaims(t *testing.T) {
	const missing = "/no-such-share"
	for name, test := range map[string]struct {
		changes map[string]string
		says    string
	}{
		"unknown parameter": {map[string]string{"colour": "blue"}, "colour"},
		"unknown server":    {map[string]string{"server": "no-such-host.invalid"}, "no-such-host.invalid"},
		"missing share":     {map[string]string{"share": missing}, missing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			good := e.createClass(nil)
			refused := e.createClaim(e.createClass(test.changes))
			e.waitWarning(refused, test.says)

			claim := e.createClaim(good)
			volume := e.waitBound(claim)
			e.expectOnExport(volume.Name)

			got, err := e.client.CoreV1().PersistentVolumeClaims(e.namespace).Get(t.Context(), refused.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Status.Phase != corev1.ClaimPending || got.Spec.VolumeName != "" {
				t.Errorf("the refused claim is %s with volume %q", got.Status.Phase, got.Spec.VolumeName)
			}
			if made, err := filepath.Glob(filepath.Join(e.export, "*"+string(refused.UID)+"*")); err != nil || len(made) > 0 {
				t.Errorf("made for the refused claim: %q, %v", made, err)
			}
			e.deleteClaim(refused)
			e.deleteClaim(claim)
			e.expectOnExport()
		})
	}
}

// waitWarning waits for an event on the claim that says why it is not provisioned.
func (e *env) waitWarning(claim *corev1.PersistentVolumeClaim, says string) {
	e.t.Helper()
	e.waitEvent("claim", claim, "ProvisioningFailed", says)
}

// waitEvent waits for a warning about an object.
func (e *env) waitEvent(what string, object metav1.Object, reason, says string) {
	e.t.Helper()
	e.eventually(fmt.Sprintf("event on %s %s about %q", what, object.GetName(), says), func(ctx context.Context) error {
		events, err := e.client.CoreV1().Events(e.namespace).List(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.uid=" + string(object.GetUID()),
		})
		if err != nil {
			return err
		}
		var seen []string
		for _, event := range events.Items {
			if event.Type == corev1.EventTypeWarning && event.Reason == reason && strings.Contains(event.Message, says) {
				e.t.Logf("event: %s", event.Message)
				return nil
			}
			seen = append(seen, event.Reason+": "+event.Message)
		}
		return fmt.Errorf("events so far: %q", seen)
	})
}
