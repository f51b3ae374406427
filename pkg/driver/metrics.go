package driver

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/store/reclaim"
)

// Sources of the metrics of a Collector; each may be nil.
type Sources struct {
	Mounter nfsmount.Mounter
	Shares  interface{ States() []share.State }
	Volumes interface{ Backlog() []reclaim.Backlog }
	// Snapshots have metrics of their own each, which may be many.
	Snapshots interface {
		SnapshotContents() []inventory.SnapshotContent
	}
}

// Collector collects metrics of mounts, shares, the reclaiming of deleted volumes and
// the content of snapshots. It accesses no server.
type Collector struct {
	sources Sources

	mounts, shareUp, shareProbe      *prometheus.Desc
	trees, entries, reclaimedEntries *prometheus.Desc
	late                             *prometheus.Desc
	snapshotBytes, snapshotEntries   *prometheus.Desc
}

// NewCollector makes a collector to register.
func NewCollector(sources Sources) *Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("nfsplugin_"+name, help, labels, nil)
	}
	return &Collector{
		sources:          sources,
		mounts:           desc("mounts", "NFS mounts in the mount table of this process, by the server's address.", "server"),
		shareUp:          desc("share_up", "Whether the server answered when it was last asked for an export that the controller has mounted.", "export"),
		shareProbe:       desc("share_probe_seconds", "How long the server took to answer, or was waited for, when it was last asked for an export that the controller has mounted.", "export"),
		trees:            desc("reclaim_backlog_volumes", "Deleted volumes whose content has not been removed from the export yet.", "export"),
		entries:          desc("reclaim_backlog_entries", "Files and directories of deleted volumes that were found and have not been removed yet. More may show up.", "export"),
		late:             desc("reclaim_late_volumes", "Deleted volumes that are removed after all others, because they take long (long), are still written to (written) or the server refuses to remove some of them (refused).", "export", "reason"),
		snapshotBytes:    desc("snapshot_content_bytes", "Size of the files in a snapshot, which may exceed the capacity of its source volume.", "export", "snapshot"),
		snapshotEntries:  desc("snapshot_content_entries", "Files, directories and other entries in a snapshot.", "export", "snapshot"),
		reclaimedEntries: desc("reclaimed_entries_total", "Files and directories of deleted volumes that were removed.", "export"),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.mounts, c.shareUp, c.shareProbe, c.trees, c.entries, c.reclaimedEntries, c.late, c.snapshotBytes, c.snapshotEntries} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	if c.sources.Mounter != nil {
		c.collectMounts(ch)
	}
	if c.sources.Shares != nil {
		c.collectShares(ch)
	}
	if c.sources.Volumes != nil {
		for _, b := range c.sources.Volumes.Backlog() {
			c.collectBacklog(ch, b)
		}
	}
	if c.sources.Snapshots != nil {
		for _, s := range c.sources.Snapshots.SnapshotContents() {
			export, id := s.ID.Export.String(), s.ID.String()
			ch <- prometheus.MustNewConstMetric(c.snapshotBytes, prometheus.GaugeValue, float64(s.Bytes), export, id)
			ch <- prometheus.MustNewConstMetric(c.snapshotEntries, prometheus.GaugeValue, float64(s.Entries), export, id)
		}
	}
}

func (c *Collector) collectBacklog(ch chan<- prometheus.Metric, b reclaim.Backlog) {
	export := b.Export.String()
	ch <- prometheus.MustNewConstMetric(c.trees, prometheus.GaugeValue, float64(b.Trees), export)
	ch <- prometheus.MustNewConstMetric(c.entries, prometheus.GaugeValue, float64(b.Entries), export)
	ch <- prometheus.MustNewConstMetric(c.reclaimedEntries, prometheus.CounterValue, float64(b.Removed), export)
	for reason, n := range map[string]int64{"long": b.Late.Long, "written": b.Late.Written, "refused": b.Late.Refused} {
		ch <- prometheus.MustNewConstMetric(c.late, prometheus.GaugeValue, float64(n), export, reason)
	}
}

func (c *Collector) collectMounts(ch chan<- prometheus.Metric) {
	table, err := c.sources.Mounter.Mounts(context.Background())
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.mounts, err)
		return
	}
	byServer := map[string]int{}
	for _, e := range table {
		if e.IsNFS() {
			byServer[e.Server]++
		}
	}
	for server, n := range byServer {
		ch <- prometheus.MustNewConstMetric(c.mounts, prometheus.GaugeValue, float64(n), server)
	}
}

// collectShares reports the worst mount of each export, which has one for each set of
// options.
func (c *Collector) collectShares(ch chan<- prometheus.Metric) {
	worst := map[string]share.State{}
	for _, s := range c.sources.Shares.States() {
		export := s.Export.String()
		if w, ok := worst[export]; !ok || w.Answered && !s.Answered || w.Answered == s.Answered && s.Took > w.Took {
			worst[export] = s
		}
	}
	for export, s := range worst {
		up := 0.0
		if s.Answered {
			up = 1
		}
		ch <- prometheus.MustNewConstMetric(c.shareUp, prometheus.GaugeValue, up, export)
		ch <- prometheus.MustNewConstMetric(c.shareProbe, prometheus.GaugeValue, s.Took.Seconds(), export)
	}
}
