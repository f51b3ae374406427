// Package volumes creates, saves and deletes the volumes of claims. It gathers what a
// claim refers to, lets package plan decide, calls the CSI driver and saves the
// PersistentVolume. It also finishes what dead processes and deleted claims left
// behind.
package volumes

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// Volumes are the volumes of one driver.
type Volumes struct {
	creator *creator
	deleter *deleter
	cleaner *cleaner
	tracker *tracker
}

// New returns Volumes that know nothing of earlier processes until Resume.
func New(config Config) *Volumes {
	calls := calls{driver: config.Driver, client: config.Client}
	tracker := &tracker{
		journal: config.Journal, protection: config.Protection, metrics: config.Metrics,
		cluster: config.Cluster, node: config.Node, driver: calls.driverName(), started: time.Now(),
	}
	saver := &saver{calls: calls, tracker: tracker, cluster: config.Cluster, node: config.Node, client: config.Client}
	return &Volumes{
		creator: &creator{
			gatherer: gatherer{config: config},
			calls:    calls,
			saver:    saver,
			tracker:  tracker,
			cluster:  config.Cluster,
		},
		deleter: &deleter{calls: calls, tracker: tracker, cluster: config.Cluster},
		cleaner: &cleaner{config: config, calls: calls, saver: saver, tracker: tracker},
		tracker: tracker,
	}
}

// Resume takes over the unfinished volumes of an earlier process.
func (v *Volumes) Resume(ctx context.Context) { v.tracker.resume(ctx) }

// Run cleans up after claims and processes that are gone, until ctx ends. The caches
// must be filled.
func (v *Volumes) Run(ctx context.Context) { v.cleaner.run(ctx) }

// Provision creates and saves the volume of a claim.
func (v *Volumes) Provision(ctx context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	return v.creator.provision(ctx, options)
}

// Delete deletes the volume of a PersistentVolume. Every error is retried.
func (v *Volumes) Delete(ctx context.Context, volume *corev1.PersistentVolume) error {
	return v.deleter.delete(ctx, volume)
}
