// Package walkthrough runs the commands of a Markdown page, and compares what they print
// with what the page shows. It is for tests only.
//
// In a section of the page,
//   - a block ```yaml whose first line is a comment with a file name, such as
//     `# class.yaml`, is a file to write;
//   - a block ```sh has commands to run;
//   - a block without a language that is the next block after one with commands, is what
//     they print. "..." in it stands for any text in a line, or, as a line, for any lines.
//
// All other blocks are ignored.
package walkthrough

import (
	"fmt"
	"regexp"
	"strings"
)

// Page is a Markdown page.
type Page struct {
	lines []string
}

// Parse reads a page.
func Parse(markdown string) *Page { return &Page{lines: strings.Split(markdown, "\n")} }

// String is the page, with the output that Update has written to it.
func (p *Page) String() string { return strings.Join(p.lines, "\n") }

// Step is a file to write, or commands to run.
type Step struct {
	// Line of the page where the block starts.
	Line     int
	File     string // name of the file; empty for commands
	Content  string
	Commands []string
	// Output is what the page shows; nil if it shows none.
	Output *Output
}

// Output is a block of a page.
type Output struct {
	Text        string
	from, until int // lines of the text
	indent      string
}

// block is a fenced block: its lines are those of the page in [from, until).
type block struct {
	language    string
	from, until int
	indent      string
}

func (p *Page) text(b block) string {
	var text strings.Builder
	for _, line := range p.lines[b.from:b.until] {
		text.WriteString(strings.TrimPrefix(line, b.indent) + "\n")
	}
	return text.String()
}

// Section returns the steps below a heading, such as "### Move a volume", up to the next
// heading of any level.
func (p *Page) Section(heading string) ([]Step, error) {
	blocks, err := p.blocks(heading)
	if err != nil {
		return nil, err
	}
	var steps []Step
	for i, b := range blocks {
		text := p.text(b)
		switch b.language {
		case "yaml":
			if name := fileName(text); name != "" {
				steps = append(steps, Step{Line: b.from, File: name, Content: text})
			}
		case "sh":
			step := Step{Line: b.from, Commands: commands(text)}
			if i+1 < len(blocks) && blocks[i+1].language == "" {
				o := blocks[i+1]
				step.Output = &Output{Text: p.text(o), from: o.from, until: o.until, indent: o.indent}
			}
			steps = append(steps, step)
		}
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("section %q has no steps", heading)
	}
	return steps, nil
}

func (p *Page) blocks(heading string) (blocks []block, err error) {
	found := false
	var open *block
	for i, line := range p.lines {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && open != nil:
			open.until = i
			blocks = append(blocks, *open)
			open = nil
		case isFence && found:
			indent, _, _ := strings.Cut(line, "`")
			open = &block{language: fence, from: i + 1, indent: indent}
		case open == nil && strings.HasPrefix(line, "#"):
			if found {
				return blocks, nil
			}
			found = line == heading
		}
	}
	if !found {
		return nil, fmt.Errorf("the page has no heading %q", heading)
	}
	return blocks, nil
}

// fileName is the name in the first line of a file's block; empty if there is none.
func fileName(text string) string {
	match := regexp.MustCompile(`^# ([a-z0-9.-]+\.yaml)\n`).FindStringSubmatch(text)
	if match == nil {
		return ""
	}
	return match[1]
}

// commands splits a block: a command continues after a line that ends with a backslash, a
// pipe or &&.
func commands(text string) []string {
	var all []string
	open := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if open {
			all[len(all)-1] += "\n" + line
		} else {
			all = append(all, line)
		}
		open = strings.HasSuffix(line, `\`) || strings.HasSuffix(line, "|") || strings.HasSuffix(line, "&&")
	}
	return all
}

// Update replaces the output that the page shows. Steps that were read before are no
// longer valid if the number of lines changes, so update the last one first.
func (p *Page) Update(o *Output, text string) {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimRight(o.indent+strings.TrimRight(line, "\n"), " "))
	}
	p.lines = append(p.lines[:o.from:o.from], append(lines, p.lines[o.until:]...)...)
}
