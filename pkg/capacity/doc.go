// Package capacity publishes the capacity of a CSI driver for the scheduler: a
// CSIStorageCapacity object for each StorageClass in each segment of the driver's
// topology.
package capacity
