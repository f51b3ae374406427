package capacity

import (
	"context"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
)

// Run publishes until ctx ends. It can be called once.
func (p *Publisher) Run(ctx context.Context) {
	p.factory.StartWithContext(ctx)
	p.own.StartWithContext(ctx)
	defer p.factory.Shutdown()
	defer p.own.Shutdown()
	p.factory.WaitForCacheSyncWithContext(ctx)
	p.own.WaitForCacheSyncWithContext(ctx)

	var workers sync.WaitGroup
	defer workers.Wait()
	defer p.queue.ShutDown()
	for range p.config.Threads {
		workers.Go(func() { p.work(ctx) })
	}
	poll := time.NewTicker(p.config.PollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
			p.aim(ctx, false)
		case <-poll.C:
			p.aim(ctx, true)
		}
	}
}

// aim brings the goal up to date and queues what is new in it, or all of it, and
// what is published but no longer in it.
func (p *Publisher) aim(ctx context.Context, all bool) {
	targets, own, obsolete, err := p.look()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot tell what to publish the capacity of")
		return
	}
	p.mu.Lock()
	before := p.targets
	p.targets = targets
	p.mu.Unlock()
	for key := range targets {
		_, known := before[key]
		_, published := own[key]
		if all || !known || !published {
			p.queue.Add(key)
		}
	}
	for _, object := range obsolete {
		p.queue.Add(obsoleteKey(object))
	}
}

// look reads the caches.
func (p *Publisher) look() (targets map[string]target, own map[string]*storagev1.CSIStorageCapacity, obsolete []*storagev1.CSIStorageCapacity, err error) {
	classes, err := p.classes.List(labels.Everything())
	if err != nil {
		return nil, nil, nil, err
	}
	segments, err := p.segments()
	if err != nil {
		return nil, nil, nil, err
	}
	objects, err := p.objects.List(labels.Everything())
	if err != nil {
		return nil, nil, nil, err
	}
	targets = goal(p.config.DriverName, p.config.Immediate, classes, segments)
	own, obsolete = assign(targets, objects)
	return targets, own, obsolete, nil
}

func (p *Publisher) work(ctx context.Context) {
	for {
		key, stopped := p.queue.Get()
		if stopped {
			return
		}
		if ctx.Err() == nil {
			p.process(ctx, key)
		}
		p.queue.Done(key)
	}
}

func (p *Publisher) process(ctx context.Context, key string) {
	var err error
	if name, ok := obsoleteName(key); ok {
		err = p.retract(ctx, name)
	} else {
		err = p.publish(ctx, key)
	}
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Cannot publish a capacity, trying again", logkeys.Key, key)
		p.queue.AddRateLimited(key)
		return
	}
	p.queue.Forget(key)
}
