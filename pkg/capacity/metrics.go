package capacity

import "github.com/prometheus/client_golang/prometheus"

// Describe implements prometheus.Collector.
func (p *Publisher) Describe(descriptions chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(p, descriptions)
}

// Collect implements prometheus.Collector.
func (p *Publisher) Collect(collected chan<- prometheus.Metric) {
	state, err := p.state()
	if err != nil {
		return
	}
	for name, gauge := range map[string]struct {
		help  string
		value int
	}{
		"csistoragecapacities_desired_goal":    {"Number of CSIStorageCapacity objects that are supposed to be managed automatically.", len(state.desired)},
		"csistoragecapacities_desired_current": {"Number of CSIStorageCapacity objects that exist and are supposed to be managed automatically.", len(state.current)},
		"csistoragecapacities_obsolete":        {"Number of CSIStorageCapacity objects that exist and will be deleted automatically.", len(state.obsolete)},
	} {
		collected <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, gauge.help, nil, nil), prometheus.GaugeValue, float64(gauge.value))
	}
}
