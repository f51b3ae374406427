// Package capacity tells the scheduler how much room a CSI driver has: it asks
// the driver for each StorageClass and each place in its topology, and publishes
// the answers as CSIStorageCapacity objects.
package capacity
