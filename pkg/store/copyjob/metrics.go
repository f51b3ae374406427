package copyjob

import "github.com/prometheus/client_golang/prometheus"

// Collector returns the metrics of the backlog.
func (p *Pool) Collector() prometheus.Collector { return collector{p} }

type collector struct{ pool *Pool }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	copies, bytes, entries := c.pool.Backlog()
	gauge := func(name, help string, value int64) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue, float64(value))
	}
	gauge("nfs_csi_copies", "Clones, snapshots and restores that are being made.", int64(copies))
	gauge("nfs_csi_copy_backlog_bytes", "Bytes that they have left to copy, as far as known.", bytes)
	gauge("nfs_csi_copy_backlog_entries", "Files that they have left to copy, as far as known.", entries)
}
