package rooms

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes a table of the rooms. Its last line has the totals: the average of the
// references over all files, the largest cycle, and the sums of the rest.
func Print(w io.Writer, rooms []Room) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "files\tlines\ttypes\treferences a file\tlargest cycle\tfunctions of 6+ parameters\t  package")
	total := Room{Package: "total"}
	for _, r := range rooms {
		r.print(table)
		total.Files += r.Files
		total.Lines += r.Lines
		total.Types += r.Types
		total.References += r.References
		total.Cycle = max(total.Cycle, r.Cycle)
		total.Parameterized += r.Parameterized
	}
	total.print(table)
	return table.Flush()
}

func (r Room) print(w io.Writer) {
	average := float64(r.References) / float64(max(r.Files, 1))
	fmt.Fprintf(w, "%d\t%d\t%d\t%.1f\t%d\t%d\t  %s\n", r.Files, r.Lines, r.Types, average, r.Cycle, r.Parameterized, r.Package)
}
