package capacity

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/workers"
)

// Run publishes until ctx ends. It waits for Config.Informers, and can be called once.
func (p *Publisher) Run(ctx context.Context) {
	p.own.StartWithContext(ctx)
	defer p.own.Shutdown()
	cache.WaitForCacheSync(ctx.Done(), p.synced...)
	p.own.WaitForCacheSyncWithContext(ctx)

	defer workers.Start(ctx, p.queue, p.config.Threads, p.process)()
	p.reconcile(ctx)
	poll := time.NewTicker(p.config.PollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
			p.reconcile(ctx)
		case <-poll.C:
			p.poll()
		}
	}
}

// reconcile computes the targets, which takes time in proportion to the number of nodes
// and of classes, and queues those that are new or not published, and obsolete objects.
func (p *Publisher) reconcile(ctx context.Context) {
	targets, err := p.targets()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to determine the desired CSIStorageCapacity objects")
		return
	}
	p.mu.Lock()
	before := p.desired
	p.desired = targets
	p.mu.Unlock()
	state, err := p.state()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to list the CSIStorageCapacity objects")
		return
	}
	for key := range targets.byKey {
		_, known := before.byKey[key]
		_, published := state.current[key]
		if !known || !published {
			p.queue.Add(key)
		}
	}
	for _, object := range state.obsolete {
		p.queue.Add(obsoletePrefix + object.Name)
	}
}

// poll queues all targets.
func (p *Publisher) poll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.desired.byKey {
		p.queue.Add(key)
	}
}

func (p *Publisher) targets() (targets, error) {
	classes, err := p.classes.List(labels.Everything())
	if err != nil {
		return targets{}, err
	}
	segments, err := p.segments()
	if err != nil {
		return targets{}, err
	}
	return desired(p.config.DriverName, p.config.Immediate, classes, segments), nil
}

// state compares the last targets with all objects.
func (p *Publisher) state() (state, error) {
	objects, err := p.objects.List(labels.Everything())
	if err != nil {
		return state{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return newState(p.desired.byKey, objects), nil
}

func (p *Publisher) target(key string) (t target, wanted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, wanted = p.desired.byKey[key]
	return t, wanted
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
