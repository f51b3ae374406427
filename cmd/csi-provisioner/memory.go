package main

import (
	"os"
	"runtime/debug"
)

// collectOften limits the memory for garbage, which a burst of claims leaves. Collecting
// it takes little CPU time compared with the calls (make bench-provisioner). GOGC in the
// environment overrides it.
func collectOften() {
	const percent = 25
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
