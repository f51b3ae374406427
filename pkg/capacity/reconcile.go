package capacity

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/workers"
)

// Run publishes until ctx ends. It can be called once.
func (p *Publisher) Run(ctx context.Context) {
	p.factory.StartWithContext(ctx)
	p.own.StartWithContext(ctx)
	defer p.factory.Shutdown()
	defer p.own.Shutdown()
	p.factory.WaitForCacheSyncWithContext(ctx)
	p.own.WaitForCacheSyncWithContext(ctx)

	defer workers.Start(ctx, p.queue, p.config.Threads, p.process)()
	poll := time.NewTicker(p.config.PollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
			p.reconcile(ctx, false)
		case <-poll.C:
			p.reconcile(ctx, true)
		}
	}
}

// reconcile queues targets that are new or not published, or all of them, and obsolete
// objects.
func (p *Publisher) reconcile(ctx context.Context, all bool) {
	state, err := p.state()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to determine the desired CSIStorageCapacity objects")
		return
	}
	p.mu.Lock()
	before := p.desired
	p.desired = state.desired
	p.mu.Unlock()
	for key := range state.desired {
		_, known := before[key]
		_, published := state.current[key]
		if all || !known || !published {
			p.queue.Add(key)
		}
	}
	for _, object := range state.obsolete {
		p.queue.Add(obsoletePrefix + object.Name)
	}
}

// state reads the caches.
func (p *Publisher) state() (state, error) {
	classes, err := p.classes.List(labels.Everything())
	if err != nil {
		return state{}, err
	}
	segments, err := p.segments()
	if err != nil {
		return state{}, err
	}
	objects, err := p.objects.List(labels.Everything())
	if err != nil {
		return state{}, err
	}
	return newState(desired(p.config.DriverName, p.config.Immediate, classes, segments), objects), nil
}

func (p *Publisher) process(ctx context.Context, key string) {
	var err error
	if name, ok := strings.CutPrefix(key, obsoletePrefix); ok {
		err = p.deleteObsolete(ctx, name)
	} else {
		err = p.publish(ctx, key)
	}
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Failed to publish capacity", logkeys.Key, key)
		p.queue.AddRateLimited(key)
		return
	}
	p.queue.Forget(key)
}
