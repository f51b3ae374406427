// Package volume holds the words the driver's side shares: exports, volume IDs,
// parameters, the one place where names and paths are checked, and the errors
// that callers decide on. It does no I/O and imports nothing of the project.
package volume
