// Package room has three files in a cycle and one outside of it.
package room

import "strings"

type first struct{ next second }

func (f first) name() string { return strings.ToUpper(f.next.name()) }
