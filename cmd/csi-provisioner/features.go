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
	gateReleaseLease    featuregate.Feature = "ReleaseLeaderElectionOnExit"
)

// addFeatureFlag returns the gates, which are set when the flags are parsed.
func addFeatureFlag(set *pflag.FlagSet) (featuregate.FeatureGate, error) {
	gates := featuregate.NewFeatureGate()
	err := gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		gateTopology:        {Default: true, PreRelease: featuregate.GA},
		gateAttributesClass: {Default: true, PreRelease: featuregate.GA},
		gateCrossNamespace:  {Default: false, PreRelease: featuregate.Alpha},
		gateReleaseLease:    {Default: true, PreRelease: featuregate.Beta},
		// Gates of earlier versions of the external-provisioner; always on here.
		"CSINodeExpandSecret":  {Default: true, LockToDefault: true, PreRelease: featuregate.GA},
		"HonorPVReclaimPolicy": {Default: true, LockToDefault: true, PreRelease: featuregate.GA},
		"ReadWriteOncePod":     {Default: true, LockToDefault: true, PreRelease: featuregate.GA},
	})
	if err != nil {
		return nil, fmt.Errorf("feature gates: %w", err)
	}
	gates.AddFlag(set)
	return gates, nil
}
