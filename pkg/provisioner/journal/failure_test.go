package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
)

// Nothing else begins that would also write the end.
func TestEndIsWrittenAgainWhenThatFailed(t *testing.T) {
	client := fake.NewClientset()
	j, _ := run(t, client)
	begin(t, j, "a")
	var failures atomic.Int32
	client.PrependReactor("update", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failures.Add(1) == 1, nil, errors.New("etcd is full")
	})
	j.End("a")
	eventually(t, "a is taken out after a failure", func() bool { return failures.Load() > 0 && len(keys(t, client)) == 0 })
}

// An entry that could not be removed is still in the ConfigMap after another process has
// written. It has ended nevertheless.
func TestEndThatFailedIsNotForgotten(t *testing.T) {
	client := fake.NewClientset()
	conflictOnStale(client)
	first, _ := run(t, client)
	begin(t, first, "a")
	begin(t, first, "b")
	second, _ := run(t, client)
	broken, _ := breakUpdates(client)
	broken.Store(true)
	first.End("a")
	if err := first.Remove(t.Context(), "b"); !errors.Is(err, ErrNotWritten) {
		t.Fatalf("Remove() = %v", err)
	}
	broken.Store(false)
	begin(t, second, "c")
	begin(t, first, "d")
	if got := keys(t, client); first.Entry("a") != nil || !slices.Equal(got, []string{"b", "c", "d"}) {
		t.Errorf("written are %v, and this process has %s", got, first.Entry("a"))
	}
}

// An entry that begins without permission is written once it is granted, also if the
// first try fails.
func TestEntryOfTheTimeWithoutPermission(t *testing.T) {
	client := fake.NewClientset()
	var calls atomic.Int32
	client.PrependReactor("create", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		switch calls.Add(1) {
		case 1:
			return true, nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "j", errors.New("not yet"))
		case 2:
			return true, nil, errors.New("etcd is full")
		default:
			return false, nil, nil
		}
	})
	j, err := Open(t.Context(), Config{Client: client.CoreV1().ConfigMaps("n"), Name: "j", ForbiddenPause: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		j.Run(ctx)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	begin(t, j, "a")
	eventually(t, "it is written", func() bool { return slices.Equal(keys(t, client), []string{"a"}) })
	if calls.Load() < 3 {
		t.Errorf("%d tries: neither forbidden nor broken", calls.Load())
	}
}

// strict refuses requests after the end of their context, as a real client does.
type strict struct{ typedcorev1.ConfigMapInterface }

func (s strict) Update(ctx context.Context, object *corev1.ConfigMap, options metav1.UpdateOptions) (*corev1.ConfigMap, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("update: %w", context.Cause(ctx))
	}
	return s.ConfigMapInterface.Update(ctx, object, options)
}

func TestEndIsWrittenWhenStopping(t *testing.T) {
	client := fake.NewClientset()
	j, err := Open(t.Context(), Config{Client: strict{client.CoreV1().ConfigMaps("n")}, Name: "j"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		j.Run(ctx)
	}()
	begin(t, j, "a")
	j.End("a")
	cancel()
	<-ended
	if got := keys(t, client); len(got) != 0 {
		t.Errorf("left are %v", got)
	}
}
