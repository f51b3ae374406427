package provisioner

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	// mostShared bounds what is remembered; in a cluster there are few sizes, and
	// few sets of annotations that are not one object's own.
	mostShared = 1000
	// longestShared leaves out what hardly occurs twice, such as an object as it
	// was applied.
	longestShared = 1024
)

// shared has one value for all that are equal: nothing modifies an object in a
// cache, and maps of their own make up the half of it.
type shared[Value any] struct {
	mu    sync.Mutex
	known map[string]Value
}

func newShared[Value any]() *shared[Value] { return &shared[Value]{known: map[string]Value{}} }

// of is the value known under the key, or this one from now on.
func (s *shared[Value]) of(key string, value Value) Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.known[key]; ok {
		return known
	}
	if len(s.known) < mostShared {
		s.known[key] = value
	}
	return value
}

// mapKey is the same for equal maps and no others. ok is false for a map that is
// too long.
func mapKey(values map[string]string) (key string, ok bool) {
	length := 0
	for name, value := range values {
		length += len(name) + len(value)
	}
	if length > longestShared {
		return "", false
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(values)) {
		for _, part := range []string{name, values[name]} {
			// With its length no part looks like two, whatever users write there.
			text.WriteString(strconv.Itoa(len(part)) + ":" + part)
		}
	}
	return text.String(), true
}
