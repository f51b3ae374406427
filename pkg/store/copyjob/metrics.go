package copyjob

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the metrics of the backlog.
func (p *Pool) Collector() prometheus.Collector { return collector{p} }

type collector struct{ pool *Pool }

type descs struct{ copies, bytes, entries *prometheus.Desc }

func (collector) descs() descs {
	return descs{
		copies:  prometheus.NewDesc("nfs_csi_copies", "Clones, snapshots and restores that are being made.", nil, nil),
		bytes:   prometheus.NewDesc("nfs_csi_copy_backlog_bytes", "Bytes that they have left to copy, as far as known.", nil, nil),
		entries: prometheus.NewDesc("nfs_csi_copy_backlog_entries", "Files that they have left to copy, as far as known.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	d := c.descs()
	ch <- d.copies
	ch <- d.bytes
	ch <- d.entries
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	copies, bytes, entries := c.pool.Backlog()
	d := c.descs()
	ch <- prometheus.MustNewConstMetric(d.copies, prometheus.GaugeValue, float64(copies))
	ch <- prometheus.MustNewConstMetric(d.bytes, prometheus.GaugeValue, float64(bytes))
	ch <- prometheus.MustNewConstMetric(d.entries, prometheus.GaugeValue, float64(entries))
}
