// Package workers takes keys from a queue and processes them concurrently.
package workers

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
)

// Start passes the keys of a queue to process, in count goroutines, until stop is
// called, which waits for them. Keys that are left at the end of ctx are dropped.
func Start[Key comparable](ctx context.Context, queue workqueue.TypedInterface[Key], count int, process func(context.Context, Key)) (stop func()) {
	var workers sync.WaitGroup
	for range count {
		workers.Go(func() {
			for key, stopped := queue.Get(); !stopped; key, stopped = queue.Get() {
				if ctx.Err() == nil {
					process(ctx, key)
				}
				queue.Done(key)
			}
		})
	}
	return func() {
		queue.ShutDown()
		workers.Wait()
	}
}
