package main

import (
	"os"
	"runtime/debug"
)

// collectOften halves what the garbage collector lets pile up: a burst of claims
// leaves mostly garbage, and the processor time that collecting it takes is small
// beside that of the calls. GOGC in the environment has the last word.
func collectOften() {
	const percent = 50
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
