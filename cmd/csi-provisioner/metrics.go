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
	// calls of the CSI driver; migratedCalls of one that has taken over the volumes of
	// an in-tree plugin, with a label that tells which are about these.
	calls, migratedCalls csimetrics.CSIMetricsManager
	// claims made into volumes, and volumes deleted.
	library libmetrics.Metrics
}

func newTelemetry() (*telemetry, error) {
	registry := prometheus.NewRegistry()
	library := libmetrics.New("controller")
	// Process and Go metrics are in the registry that client-go's metrics are in.
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
