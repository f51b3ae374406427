package journal

import (
	"fmt"
	"strconv"
	"strings"
)

// table numbers the elements of the lists of one shard, so that each is stored once. A list
// is stored as the numbers of its elements: "0-999", or "17-999,0-16" for the same elements
// from another one on.
type table struct {
	elements []string
	numbers  map[string]int
}

func newTable() *table { return &table{numbers: map[string]int{}} }

// refer adds the elements that are not there yet and returns their numbers.
func (t *table) refer(list []string) string {
	var out strings.Builder
	for i := 0; i < len(list); {
		first := t.number(list[i])
		last := first
		for i++; i < len(list) && t.number(list[i]) == last+1; i++ {
			last++
		}
		if out.Len() > 0 {
			out.WriteByte(',')
		}
		out.WriteString(strconv.Itoa(first))
		if last > first {
			out.WriteByte('-')
			out.WriteString(strconv.Itoa(last))
		}
	}
	return out.String()
}

func (t *table) number(element string) int {
	number, found := t.numbers[element]
	if !found {
		number = len(t.elements)
		t.elements = append(t.elements, element)
		t.numbers[element] = number
	}
	return number
}

// resolve returns the elements with these numbers.
func resolve(elements []string, numbers string) ([]string, error) {
	var list []string
	for part := range strings.SplitSeq(numbers, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.Atoi(from)
		last, lastErr := strconv.Atoi(to)
		if err != nil || lastErr != nil || first > last || first < 0 || last >= len(elements) {
			return nil, fmt.Errorf("%q is not a range of the %d elements", part, len(elements))
		}
		list = append(list, elements[first:last+1]...)
	}
	return list, nil
}
