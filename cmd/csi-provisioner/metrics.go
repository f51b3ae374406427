package main

import (
	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection" // leader_election_*
	_ "k8s.io/component-base/metrics/prometheus/workqueue"               // workqueue_*
	libmetrics "sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller/metrics"
)

type telemetry struct {
	registry *prometheus.Registry
	gatherer prometheus.Gatherer
	// calls of the CSI driver; migratedCalls of a driver that replaced an in-tree plugin,
	// with a label for calls about migrated volumes.
	calls, migratedCalls csimetrics.CSIMetricsManager
	// library counts provisioned claims and deleted volumes.
	library libmetrics.Metrics
}

func newTelemetry() (*telemetry, error) {
	registry := prometheus.NewRegistry()
	library := libmetrics.New("controller")
	// Process and Go metrics are in the same registry as those of client-go.
	calls := csimetrics.NewCSIMetricsManagerWithOptions("", csimetrics.WithProcessStartTime(false))
	migratedCalls := csimetrics.NewCSIMetricsManagerWithOptions("", csimetrics.WithProcessStartTime(false), csimetrics.WithMigration())
	t := &telemetry{
		registry:      registry,
		gatherer:      prometheus.Gatherers{registry, calls.GetRegistry(), migratedCalls.GetRegistry(), legacyregistry.DefaultGatherer},
		calls:         calls,
		migratedCalls: migratedCalls,
		library:       library,
	}
	return t, t.register(
		library.PersistentVolumeClaimProvisionTotal,
		library.PersistentVolumeClaimProvisionFailedTotal,
		library.PersistentVolumeClaimProvisionDurationSeconds,
		library.PersistentVolumeDeleteTotal,
		library.PersistentVolumeDeleteFailedTotal,
		library.PersistentVolumeDeleteDurationSeconds,
	)
}

func (t *telemetry) register(collectors ...prometheus.Collector) error {
	for _, collector := range collectors {
		if err := t.registry.Register(collector); err != nil {
			return err
		}
	}
	return nil
}
