// Package docs reads the project's Markdown, to hold what it says to what is
// there.
package docs

import (
	"regexp"
	"strings"
)

// Command is one line of a shell block.
type Command struct {
	Line  int
	Words []string
}

// Commands gives the command lines of the ```sh blocks, split at && as well.
func Commands(markdown string) []Command {
	var commands []Command
	inside := false
	number := 0
	for line := range strings.Lines(markdown) {
		number++
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			inside = !inside && line == "```sh"
			continue
		}
		if !inside {
			continue
		}
		for part := range strings.SplitSeq(line, "&&") {
			if words := strings.Fields(part); len(words) > 0 {
				commands = append(commands, Command{Line: number, Words: words})
			}
		}
	}
	return commands
}

// Inline gives the command lines between single backquotes.
func Inline(markdown string) []Command {
	var commands []Command
	code := regexp.MustCompile("`([^`]+)`")
	number := 0
	for line := range strings.Lines(markdown) {
		number++
		for _, match := range code.FindAllStringSubmatch(line, -1) {
			commands = append(commands, Command{Line: number, Words: strings.Fields(match[1])})
		}
	}
	return commands
}

// Links gives the targets of links that are not to other sites.
func Links(markdown string) []string {
	var links []string
	link := regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
	for _, match := range link.FindAllStringSubmatch(markdown, -1) {
		if !strings.Contains(match[1], "://") {
			links = append(links, match[1])
		}
	}
	return links
}

// Targets gives the names of a Makefile's phony targets.
func Targets(makefile string) map[string]bool {
	targets := map[string]bool{}
	for line := range strings.Lines(makefile) {
		if names, ok := strings.CutPrefix(line, ".PHONY:"); ok {
			for _, name := range strings.Fields(names) {
				targets[name] = true
			}
		}
	}
	return targets
}
