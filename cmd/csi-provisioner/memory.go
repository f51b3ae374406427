package main

import (
	"os"
	"runtime/debug"
)

// collectOften lets little garbage pile up: a burst of claims leaves much, and the
// processor time that collecting it takes is small beside that of the calls (make
// bench-provisioner). GOGC in the environment has the last word.
func collectOften() {
	const percent = 25
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
