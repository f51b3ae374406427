package provisioner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// journalMetrics are of the volumes in the making, as the last look at them was: all
// zero in a process that does not lead.
type journalMetrics struct {
	entries, unsaved, oldest prometheus.Gauge
}

func newJournalMetrics() journalMetrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "csi_provisioner", Subsystem: "journal", Name: name, Help: help})
	}
	return journalMetrics{
		entries: gauge("entries", "Number of volumes in the making."),
		unsaved: gauge("unsaved_volumes", "Number of volumes in the making that the driver has made and whose PersistentVolume could not be saved yet."),
		oldest:  gauge("oldest_entry_age_seconds", "How long the oldest of the volumes in the making has been so."),
	}
}

// Collectors are of the provisioner's own metrics; the caller registers them.
func (p *Provisioner) Collectors() []prometheus.Collector {
	return []prometheus.Collector{p.metrics.entries, p.metrics.unsaved, p.metrics.oldest}
}

// observe takes entries of unknown age for as old as this process's work.
func (s *session) observe(now time.Time, entries map[string][]byte) {
	oldest := now
	for _, data := range entries {
		began := plan.BeganAt(data)
		if began.IsZero() {
			began = s.resumed
		}
		if began.Before(oldest) {
			oldest = began
		}
	}
	s.metrics.entries.Set(float64(len(entries)))
	s.metrics.unsaved.Set(float64(len(s.unsaved.all())))
	s.metrics.oldest.Set(now.Sub(oldest).Seconds())
}
