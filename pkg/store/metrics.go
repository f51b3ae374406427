package store

import "github.com/prometheus/client_golang/prometheus"

// copyCollector shows the copies that are being made.
type copyCollector struct{ store *Store }

type copyDescs struct{ copies, bytes, entries *prometheus.Desc }

func (copyCollector) descs() copyDescs {
	return copyDescs{
		copies:  prometheus.NewDesc("nfs_csi_copies", "Clones, snapshots and restores that are being made.", nil, nil),
		bytes:   prometheus.NewDesc("nfs_csi_copy_backlog_bytes", "Bytes that they have left to copy, as far as known.", nil, nil),
		entries: prometheus.NewDesc("nfs_csi_copy_backlog_entries", "Files that they have left to copy, as far as known.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c copyCollector) Describe(ch chan<- *prometheus.Desc) {
	d := c.descs()
	ch <- d.copies
	ch <- d.bytes
	ch <- d.entries
}

// Collect implements prometheus.Collector.
func (c copyCollector) Collect(ch chan<- prometheus.Metric) {
	copies, bytes, entries := c.store.CopyBacklog()
	d := c.descs()
	ch <- prometheus.MustNewConstMetric(d.copies, prometheus.GaugeValue, float64(copies))
	ch <- prometheus.MustNewConstMetric(d.bytes, prometheus.GaugeValue, float64(bytes))
	ch <- prometheus.MustNewConstMetric(d.entries, prometheus.GaugeValue, float64(entries))
}
