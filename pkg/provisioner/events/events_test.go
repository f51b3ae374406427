package events

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
)

// settled records ten events and returns how long Settle took.
func settled(t *testing.T, client *fake.Clientset) time.Duration {
	t.Helper()
	tracked := NewClient(client)
	broadcaster := record.NewBroadcaster(record.WithContext(t.Context()))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: tracked.CoreV1().Events(metav1.NamespaceAll)})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "nfs.example"})
	for range 10 {
		recorder.Event(&corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "team", Name: "data"}, corev1.EventTypeWarning, "Failed", "no")
	}
	began := time.Now()
	tracked.Settle()
	return time.Since(began)
}

func TestSettleWaitsForEvents(t *testing.T) {
	for _, delay := range []time.Duration{0, quiet, 3 * quiet} {
		synctest.Test(t, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("*", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
				time.Sleep(delay)
				return false, nil, nil
			})
			if took := settled(t, client); took != 10*delay+quiet {
				t.Errorf("it took %s", took)
			}
			list, err := client.CoreV1().Events("team").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != 1 || list.Items[0].Count != 10 {
				t.Errorf("there are %v, %v, want one that was repeated ten times", list.Items, err)
			}
		})
	}
}

func TestSettleGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("*", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(time.Minute)
			return true, nil, errors.New("the API server is gone")
		})
		if took := settled(t, client); took != settleLimit {
			t.Errorf("it took %s, want %s", took, settleLimit)
		}
		time.Sleep(time.Hour) // until what is being written has failed
	})
}
