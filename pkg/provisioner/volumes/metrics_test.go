package volumes

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
			s := &cleaner{config: Config{Metrics: NewMetrics()}, tracker: &tracker{started: resumed}}
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
				got[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
			}
			for metric, want := range map[string]float64{
				"csi_provisioner_journal_entries":                  float64(len(test.entries)),
				"csi_provisioner_journal_unsaved_volumes":          1,
				"csi_provisioner_journal_oldest_entry_age_seconds": test.want,
			} {
				if value, found := got[metric]; !found || value != want {
					t.Errorf("%s is %g, want %g", metric, value, want)
				}
			}
		})
	}
}
