// Package plan decides, without I/O: claim and StorageClass to CreateVolume request,
// response to PersistentVolume, error to next step. Its functions do not modify their
// arguments.
package plan

import "errors"

// The causes of a refusal. They tell which object has to be changed.
var (
	// ErrClaim is wrapped when the claim requests what cannot be provisioned.
	ErrClaim = errors.New("claim cannot be provisioned")
	// ErrClass is wrapped when the StorageClass is at fault.
	ErrClass = errors.New("invalid StorageClass")
	// ErrVolume is wrapped when a PersistentVolume lacks what its deletion needs.
	ErrVolume = errors.New("invalid PersistentVolume")
	// ErrResponse is wrapped when a driver's response violates the CSI specification
	// or does not match the request.
	ErrResponse = errors.New("unusable response of the CSI driver")
)
