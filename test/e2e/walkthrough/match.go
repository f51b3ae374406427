package walkthrough

import (
	"regexp"
	"strings"
)

// Shows tells whether the output on the page is that of a run. UUIDs, ages and times differ
// between runs and are ignored, and so are lines that only report progress.
func (o *Output) Shows(run string) bool {
	var pattern strings.Builder
	pattern.WriteString(`^`)
	for line := range strings.Lines(normal(o.Text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "..." {
			pattern.WriteString(`(?:.*\n)*?`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*`) + `\n`)
	}
	pattern.WriteString(`$`)
	return regexp.MustCompile(pattern.String()).MatchString(normal(run))
}

// normal is output without what differs between runs.
func normal(output string) string {
	uuid := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	age := regexp.MustCompile(`(?m)([ \t]|^)(?:\d+[dhms]){1,2}([ \t]|$)`)
	time := regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z`)
	output = uuid.ReplaceAllString(Tidy(output), "UUID")
	output = time.ReplaceAllString(output, "TIME")
	return age.ReplaceAllString(output, "${1}AGE${2}")
}

// Tidy removes lines that only report progress, and blanks at the end of lines.
func Tidy(output string) string {
	var tidy strings.Builder
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, " \t\r\n")
		if line == "" || strings.HasPrefix(line, "Waiting for ") {
			continue
		}
		tidy.WriteString(line + "\n")
	}
	return tidy.String()
}
