package capacity

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// refreshDelay collects the volumes that are created and deleted at about the same time.
const refreshDelay = time.Second

// Refresh publishes again, shortly, what a change of a volume has probably changed: the
// capacity of the segments in its node affinity or, without one, of its class. The other
// segments and classes that share the storage are published at the next poll.
func (p *Publisher) Refresh(class string, affinity *corev1.VolumeNodeAffinity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range p.desired.near(class, affinity) {
		p.queue.AddAfter(key, refreshDelay)
	}
}
