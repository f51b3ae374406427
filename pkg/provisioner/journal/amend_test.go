package journal

import (
	"errors"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// written is the ConfigMap's entry for a key.
func written(t *testing.T, client *fake.Clientset, key string) string {
	t.Helper()
	return string(open(t, config(client)).Data(key))
}

// breakUpdates makes updates fail while the flag is set.
func breakUpdates(client *fake.Clientset) (broken *atomic.Bool, failure error) {
	broken, failure = &atomic.Bool{}, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), "j.0", nil)
	client.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return broken.Load(), nil, failure
	})
	return broken, failure
}

func TestAmendIsWrittenWhenItReturns(t *testing.T) {
	client := fake.NewClientset()
	j, _ := run(t, client)
	begin(t, j, "a")
	if err := j.Amend(t.Context(), "a", []byte(`{"made":true}`)); err != nil {
		t.Fatal(err)
	}
	if got := written(t, client, "a"); got != `{"made":true}` {
		t.Errorf("written is %s", got)
	}
	if err := j.Amend(t.Context(), "never-begun", []byte("{}")); err != nil || j.Data("never-begun") != nil {
		t.Errorf("Amend() = %v of an entry that has not begun, and it is %s", err, j.Data("never-begun"))
	}
}

func TestAmendThatCannotBeWritten(t *testing.T) {
	client := fake.NewClientset()
	j, stop := run(t, client)
	begin(t, j, "a")
	broken, failure := breakUpdates(client)
	broken.Store(true)
	if err := j.Amend(t.Context(), "a", []byte(`{"made":true}`)); !errors.Is(err, ErrNotWritten) || !errors.Is(err, failure) {
		t.Errorf("Amend() = %v", err)
	}
	if got := string(j.Data("a")); got != `{"made":true}` {
		t.Errorf("this process goes on with %s", got)
	}
	broken.Store(false)
	stop()
	if got := written(t, client, "a"); got != `{"made":true}` {
		t.Errorf("written later is %s", got)
	}
}

func TestRemoveIsWrittenWhenItReturns(t *testing.T) {
	client := fake.NewClientset()
	j, _ := run(t, client, retryingSoon)
	begin(t, j, "a")
	begin(t, j, "b")
	broken, failure := breakUpdates(client)
	broken.Store(true)
	if err := j.Remove(t.Context(), "a"); !errors.Is(err, ErrNotWritten) || !errors.Is(err, failure) {
		t.Errorf("Remove() = %v", err)
	}
	if j.Data("a") == nil {
		t.Error("this process takes it for removed")
	}
	broken.Store(false)
	eventually(t, "it is removed", func() bool { return j.Remove(t.Context(), "a") == nil })
	if a, b := written(t, client, "a"), written(t, client, "b"); a != "" || b == "" {
		t.Errorf("written are a %q and b %q", a, b)
	}
}
