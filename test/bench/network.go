package main

import (
	"fmt"
	"os/exec"
	"time"
)

// roundTrip names the network as the figures do: a delay counts twice, once in
// each direction.
func roundTrip(delay time.Duration) string {
	if delay == 0 {
		return "loopback"
	}
	return "rtt-" + (2 * delay).String()
}

// microseconds is a duration as tc(8) reads it.
func microseconds(d time.Duration) string { return fmt.Sprintf("%dus", d.Microseconds()) }

// setDelay delays every packet on the loopback interface (tc-netem(8)).
func setDelay(delay time.Duration) error {
	// There may be nothing to take away.
	_ = exec.Command("tc", "qdisc", "del", "dev", "lo", "root").Run()
	if delay == 0 {
		return nil
	}
	out, err := exec.Command("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", microseconds(delay), "limit", "100000").CombinedOutput()
	if err != nil {
		return fmt.Errorf("tc netem: %w: %s", err, out)
	}
	return nil
}
