package main

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/component-base/featuregate"
)

const (
	gateTopology        featuregate.Feature = "Topology"
	gateAttributesClass featuregate.Feature = "VolumeAttributesClass"
	gateCrossNamespace  featuregate.Feature = "CrossNamespaceVolumeDataSource"
)

// Features are the values of --feature-gates.
type Features struct {
	Topology                       bool
	VolumeAttributesClass          bool
	CrossNamespaceVolumeDataSource bool
}

// addFeatureFlag returns a function that reads the gates after the flags are parsed.
func addFeatureFlag(set *pflag.FlagSet) (func() Features, error) {
	gates := featuregate.NewFeatureGate()
	err := gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		gateTopology:        {Default: true, PreRelease: featuregate.GA},
		gateAttributesClass: {Default: true, PreRelease: featuregate.GA},
		gateCrossNamespace:  {Default: false, PreRelease: featuregate.Alpha},
		// Gates of earlier versions of the external-provisioner; always on here.
		"CSINodeExpandSecret":  {Default: true, LockToDefault: true, PreRelease: featuregate.GA},
		"HonorPVReclaimPolicy": {Default: true, LockToDefault: true, PreRelease: featuregate.GA},
		"ReadWriteOncePod":     {Default: true, LockToDefault: true, PreRelease: featuregate.GA},
	})
	if err != nil {
		return nil, fmt.Errorf("feature gates: %w", err)
	}
	gates.AddFlag(set)
	return func() Features {
		return Features{
			Topology:                       gates.Enabled(gateTopology),
			VolumeAttributesClass:          gates.Enabled(gateAttributesClass),
			CrossNamespaceVolumeDataSource: gates.Enabled(gateCrossNamespace),
		}
	}, nil
}
