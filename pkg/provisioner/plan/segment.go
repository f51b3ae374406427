package plan

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

// Segment is a segment of a driver's topology: a value for each of its keys.
type Segment map[string]string

// allowedSegments are the combinations that the terms allow.
func allowedSegments(terms []corev1.TopologySelectorTerm) []Segment {
	var all []Segment
	for _, term := range terms {
		if len(term.MatchLabelExpressions) == 0 {
			continue
		}
		combined := []Segment{{}}
		for _, expression := range term.MatchLabelExpressions {
			var next []Segment
			for _, segment := range combined {
				for _, value := range expression.Values {
					extended := maps.Clone(segment)
					extended[expression.Key] = value
					next = append(next, extended)
				}
			}
			combined = next
		}
		all = append(all, combined...)
	}
	return distinct(all)
}

// spread chooses a segment for a claim. The claims of a StatefulSet, which are named
// TEMPLATE-SET-ORDINAL, get consecutive ones by the name of the set and the ordinal, so
// that all claims of a pod get the same.
func spread(claimName string, segments int) int {
	var ordinal uint32
	base := claimName
	if i := strings.LastIndexByte(claimName, '-'); i >= 0 {
		if n, err := strconv.ParseUint(claimName[i+1:], 10, 32); err == nil {
			ordinal = uint32(n)
			base = claimName[strings.LastIndexByte(claimName[:i], '-')+1 : i]
		}
	}
	hash := fnv.New32()
	_, _ = hash.Write([]byte(base)) // never fails
	// The sum may overflow, as external-provisioner's does.
	return int((hash.Sum32() + ordinal) % uint32(segments))
}

// distinct also sorts, so that each try of a claim makes the same request.
func distinct(segments []Segment) []Segment {
	sorted := slices.Clone(segments)
	slices.SortFunc(sorted, func(a, b Segment) int { return cmp.Compare(a.String(), b.String()) })
	return slices.CompactFunc(sorted, maps.Equal[Segment, Segment])
}

// within reports whether the segment has all values of the term.
func (s Segment) within(term Segment) bool {
	for key, value := range term {
		if got, found := s[key]; !found || got != value {
			return false
		}
	}
	return true
}

func (s Segment) keys() []string { return slices.Sorted(maps.Keys(s)) }

// String is key=value for each key, sorted.
func (s Segment) String() string {
	var pairs []string
	for _, key := range s.keys() {
		pairs = append(pairs, key+"="+s[key])
	}
	return strings.Join(pairs, ",")
}

func topologies(segments []Segment) []*csi.Topology {
	var all []*csi.Topology
	for _, segment := range segments {
		all = append(all, &csi.Topology{Segments: segment})
	}
	return all
}
