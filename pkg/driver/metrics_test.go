package driver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/nfs-csi/nfs-csi/pkg/nfsmount/nfsmounttest"
	"github.com/nfs-csi/nfs-csi/pkg/share"
	"github.com/nfs-csi/nfs-csi/pkg/store/inventory"
	"github.com/nfs-csi/nfs-csi/pkg/store/reclaim"
	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

type (
	states  []share.State
	backlog []reclaim.Backlog
	sizes   []inventory.SnapshotContent
)

func (s states) States() []share.State       { return s }
func (b backlog) Backlog() []reclaim.Backlog { return b }

func (s sizes) SnapshotContents() []inventory.SnapshotContent { return s }

func TestCollector(t *testing.T) {
	l := newLab(t)
	l.publish(t, l.create(t, "pvc-1"))
	a, b := volume.Export{Server: "a", Share: "/e"}, volume.Export{Server: "b", Share: "/e"}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(NewCollector(Sources{
		Mounter: l.fake,
		Shares: states{
			{Export: a, Answered: true, Took: 2 * time.Millisecond}, {Export: a, Answered: false, Took: 1500 * time.Millisecond},
			{Export: b, Answered: true, Took: time.Millisecond},
		},
		Volumes:   backlog{{Export: a, Trees: 9, Entries: 30, Removed: 400, Late: reclaim.Late{Long: 1, Written: 2, Refused: 3}}},
		Snapshots: sizes{{ID: volume.SnapshotID{Export: a, Name: "s", Source: "pvc-1"}, Bytes: 50, Entries: 6}},
	})); err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, m := range []string{
		`nfsplugin_mounts{server="nfs.test"} 2`, // the controller's and the node's
		`nfsplugin_share_up{export="a:/e"} 0`, `nfsplugin_share_probe_seconds{export="a:/e"} 1.5`,
		`nfsplugin_share_up{export="b:/e"} 1`, `nfsplugin_share_probe_seconds{export="b:/e"} 0.001`,
		`nfsplugin_reclaim_backlog_volumes{export="a:/e"} 9`, `nfsplugin_reclaim_backlog_entries{export="a:/e"} 30`,
		`nfsplugin_reclaimed_entries_total{export="a:/e"} 400`,
		`nfsplugin_reclaim_late_volumes{export="a:/e",reason="long"} 1`, `nfsplugin_reclaim_late_volumes{export="a:/e",reason="written"} 2`,
		`nfsplugin_reclaim_late_volumes{export="a:/e",reason="refused"} 3`,
		`nfsplugin_snapshot_content_bytes{export="a:/e",snapshot="a#e#s#s#pvc-1"} 50`,
		`nfsplugin_snapshot_content_entries{export="a:/e",snapshot="a#e#s#s#pvc-1"} 6`,
	} {
		want.WriteString(m + "\n")
	}
	scrape := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(scrape, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	got := scrape.Body.String()
	for line := range strings.Lines(want.String()) {
		if !strings.Contains(got, line) {
			t.Errorf("lacks %s in\n%s", line, got)
		}
	}
	// A collector without sources collects nothing.
	registry = prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(Sources{Mounter: nfsmounttest.NewFake()}))
	if none, err := registry.Gather(); err != nil || len(none) != 0 {
		t.Errorf("metrics of nothing: %v, %v", none, err)
	}
}
