package main

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// leaseLabels is the value of --leader-election-labels: KEY:VALUE,KEY:VALUE. Each use of
// the flag adds labels.
type leaseLabels map[string]string

// Type implements pflag.Value.
func (l *leaseLabels) Type() string { return "key:value,..." }

// String implements pflag.Value.
func (l *leaseLabels) String() string {
	var pairs []string
	for key, value := range *l {
		pairs = append(pairs, key+":"+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// Set implements pflag.Value.
func (l *leaseLabels) Set(text string) error {
	if *l == nil {
		*l = leaseLabels{}
	}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, ":")
		if !ok || strings.Contains(value, ":") {
			return fmt.Errorf("%q is not key:value", pair)
		}
		(*l)[key] = value
	}
	return nil
}

// validate refuses what the API server would refuse, which would leave every replica
// without the Lease.
func (l leaseLabels) validate() error {
	for key, value := range l {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return fmt.Errorf("--leader-election-labels: %q is no label's key: %s", key, strings.Join(problems, "; "))
		}
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			return fmt.Errorf("--leader-election-labels: %q is no label's value: %s", value, strings.Join(problems, "; "))
		}
	}
	return nil
}
