// Package volume holds the types that the driver's packages share: exports, volume IDs,
// parameters, the only checks of names and paths, and the sentinel errors. It does no
// I/O and imports no other package of the project.
package volume
