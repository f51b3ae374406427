// Package report prints the lines of the benches, and reads from /proc what they
// say of a process.
package report

import "fmt"

// Line is one figure beside its floor, all of it written as it is to be read.
type Line struct {
	Name, Value, Floor, Ratio, Target string
	OK                                bool
}

// Print writes the line in the form that docs/bench.md gives.
func (l Line) Print() {
	verdict := "short"
	if l.OK {
		verdict = "ok"
	}
	fmt.Printf("bench %s value=%s floor=%s ratio=%s target=%s %s\n", l.Name, l.Value, l.Floor, l.Ratio, l.Target, verdict)
}

// AtMost prints a figure that has no floor and should not be larger than target.
func AtMost(name string, value, target float64, unit string) {
	absolute(name, value, target, unit, value <= target)
}

// AtLeast prints a figure that has no floor and should not be less than target.
func AtLeast(name string, value, target float64, unit string) {
	absolute(name, value, target, unit, value >= target)
}

func absolute(name string, value, target float64, unit string, ok bool) {
	Line{
		Name: name, Value: fmt.Sprintf("%.1f%s", value, unit), Floor: "none", Ratio: "none",
		Target: fmt.Sprintf("%.1f%s", target, unit), OK: ok,
	}.Print()
}
