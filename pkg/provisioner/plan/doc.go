// Package plan holds the provisioner's decisions, apart from everything that
// reads or writes: claim and StorageClass to CreateVolume request, response to
// PersistentVolume, error to what happens next. Its functions take what was
// gathered and never modify it.
package plan

import "errors"

// What a decision can object to. Callers wrap nothing else into these, so
// errors.Is tells whose turn it is to change something.
var (
	// ErrClaim is wrapped when the claim asks for what cannot be provisioned.
	ErrClaim = errors.New("claim cannot be provisioned")
	// ErrClass is wrapped when the StorageClass is at fault.
	ErrClass = errors.New("invalid StorageClass")
	// ErrVolume is wrapped when a PersistentVolume lacks what its deletion needs.
	ErrVolume = errors.New("invalid PersistentVolume")
	// ErrResponse is wrapped when a driver's answer breaks the CSI specification
	// or the request.
	ErrResponse = errors.New("unusable response of the CSI driver")
)
