package volumes

import "github.com/prometheus/client_golang/prometheus"

// Metrics are about the unfinished volumes. They stay zero in a process that does not
// lead.
type Metrics struct {
	entries, unsaved, oldest, failing prometheus.Gauge
	unrecorded                        prometheus.Counter
}

// NewMetrics returns Metrics that are not registered.
func NewMetrics() *Metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "csi_provisioner", Subsystem: "journal", Name: name, Help: help})
	}
	return &Metrics{
		entries: gauge("entries", "Number of unfinished volumes."),
		unsaved: gauge("unsaved_volumes", "Number of unfinished volumes that the driver has created and whose PersistentVolume could not be saved yet."),
		oldest:  gauge("oldest_entry_age_seconds", "Age of the oldest unfinished volume."),
		failing: gauge("failing", "1 while the journal cannot be read or written, so that a crash may leave volumes behind."),
		unrecorded: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "csi_provisioner", Subsystem: "journal", Name: "unrecorded_volumes_total",
			Help: "Number of volumes whose creation began without being recorded in the journal.",
		}),
	}
}

// Collectors are for registration.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.entries, m.unsaved, m.oldest, m.failing, m.unrecorded}
}
