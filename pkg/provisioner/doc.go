// Package provisioner makes and deletes the volumes of PersistentVolumeClaims
// with any CSI driver that listens on a unix socket. It gathers (claim, class,
// secrets, the driver's capabilities), lets package plan decide, and acts.
// Watching, queueing and saving PersistentVolumes is the work of
// sig-storage-lib-external-provisioner.
package provisioner

// Keys of structured log entries.
const (
	logAddress = "address"
	logDriver  = "driver"
	logPV      = "PV"
	logPVC     = "PVC"
	logSecret  = "secret"
	logSince   = "since"
	logState   = "state"
	logVolume  = "volumeHandle"
	logWorkers = "workers"
)
