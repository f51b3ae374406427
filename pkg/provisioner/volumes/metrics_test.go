package volumes

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/journal"
)

func TestAgeOfTheOldestNote(t *testing.T) {
	resumed := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	now := resumed.Add(time.Minute)
	for name, test := range map[string]struct {
		entries map[string][]byte
		want    float64
	}{
		"none": {nil, 0},
		"two": {map[string][]byte{
			"a": []byte(`{"began":"2026-01-02T03:04:50Z"}`),
			"b": []byte(`{"began":"2026-01-02T03:00:00Z"}`),
		}, 300},
		"one of an earlier version": {map[string][]byte{
			"a": []byte(`{"began":"2026-01-02T03:04:50Z"}`),
			"b": []byte(`{"request":{}}`),
		}, 60},
	} {
		t.Run(name, func(t *testing.T) {
			entries, err := journal.Open(t.Context(), journal.Config{
				Client: fake.NewClientset().CoreV1().ConfigMaps("n"), Name: "j", Shards: 1, Events: record.NewFakeRecorder(1),
			})
			if err != nil {
				t.Fatal(err)
			}
			s := &cleaner{config: Config{Metrics: NewMetrics(), Journal: entries}, tracker: &tracker{started: resumed}}
			s.tracker.unsaved.add("a", "handle")
			s.observe(now, test.entries)
			registry := prometheus.NewRegistry()
			registry.MustRegister(s.config.Metrics.Collectors()...)
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]float64{}
			for _, family := range families {
				got[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue() // 0 for a counter
			}
			for metric, want := range map[string]float64{
				"csi_provisioner_journal_entries":                  float64(len(test.entries)),
				"csi_provisioner_journal_unsaved_volumes":          1,
				"csi_provisioner_journal_oldest_entry_age_seconds": test.want,
				"csi_provisioner_journal_failing":                  0,
				"csi_provisioner_journal_unrecorded_volumes_total": 0,
			} {
				if value, found := got[metric]; !found || value != want {
					t.Errorf("%s is %g, want %g", metric, value, want)
				}
			}
		})
	}
}
