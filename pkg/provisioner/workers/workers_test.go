package workers

import (
	"context"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/util/workqueue"
)

func TestStopWaitsForEveryKey(t *testing.T) {
	queue := workqueue.NewTyped[int]()
	const keys = 100
	for key := range keys {
		queue.Add(key)
	}
	var processed atomic.Int32
	stop := Start(t.Context(), queue, 3, func(context.Context, int) { processed.Add(1) })
	stop()
	if got := processed.Load(); got != keys {
		t.Errorf("%d keys were processed, want %d", got, keys)
	}
}

func TestKeysAreDroppedWhenTheContextEnds(t *testing.T) {
	queue := workqueue.NewTyped[int]()
	for key := range 100 {
		queue.Add(key)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var processed atomic.Int32
	stop := Start(ctx, queue, 1, func(context.Context, int) {
		processed.Add(1)
		cancel()
	})
	stop()
	if got := processed.Load(); got != 1 || queue.Len() != 0 {
		t.Errorf("%d keys were processed and %d are left, want 1 and 0", got, queue.Len())
	}
}
