package cluster

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	// maxShared bounds the table: a cluster has few sizes, and few sets of
	// annotations that are common to several objects.
	maxShared = 1000
	// maxSharedLength excludes maps that hardly occur twice, such as those with a
	// last-applied configuration.
	maxSharedLength = 1024
)

// shared interns values: nothing modifies an object in a cache, and maps of their own
// would take half of its memory.
type shared[Value any] struct {
	mu    sync.Mutex
	known map[string]Value
}

func newShared[Value any]() *shared[Value] { return &shared[Value]{known: map[string]Value{}} }

// of returns the value stored under the key, or stores this one.
func (s *shared[Value]) of(key string, value Value) Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.known[key]; ok {
		return known
	}
	if len(s.known) < maxShared {
		s.known[key] = value
	}
	return value
}

// mapKey is unique to a map's content. ok is false for a map that is too long.
func mapKey(values map[string]string) (key string, ok bool) {
	length := 0
	for name, value := range values {
		length += len(name) + len(value)
	}
	if length > maxSharedLength {
		return "", false
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(values)) {
		for _, part := range []string{name, values[name]} {
			// The length keeps parts apart, whatever users write into them.
			text.WriteString(strconv.Itoa(len(part)) + ":" + part)
		}
	}
	return text.String(), true
}
