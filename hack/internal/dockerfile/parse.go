// Package dockerfile reads the part of the Dockerfile language that a stage
// needs which only copies finished binaries onto scratch. Whatever it does not
// know it refuses, so that an image packed from what it read cannot silently
// differ from the one an engine would build.
package dockerfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ErrUnsupported is wrapped by errors about instructions outside the subset.
var ErrUnsupported = errors.New("not supported")

// File is a Dockerfile split into stages.
type File struct {
	Stages []Stage
}

// Stage is one FROM and what follows it.
type Stage struct {
	Base         string
	Name         string
	Instructions []Instruction
}

// Instruction is one logical line.
type Instruction struct {
	Line    int
	Keyword string
	Args    string
}

func (i Instruction) unsupported(why string) error {
	return fmt.Errorf("line %d: %s %s: %w: %s", i.Line, i.Keyword, i.Args, ErrUnsupported, why)
}

// Parse splits a Dockerfile into stages. Instructions are looked at only when a
// stage is asked for.
func Parse(r io.Reader) (File, error) {
	var file File
	lines, err := logicalLines(r)
	if err != nil {
		return File{}, err
	}
	for _, in := range lines {
		if in.Keyword == "FROM" {
			stage, err := parseFrom(in)
			if err != nil {
				return File{}, err
			}
			file.Stages = append(file.Stages, stage)
			continue
		}
		if len(file.Stages) == 0 {
			return File{}, in.unsupported("instructions before the first FROM")
		}
		last := &file.Stages[len(file.Stages)-1]
		last.Instructions = append(last.Instructions, in)
	}
	return file, nil
}

func parseFrom(in Instruction) (Stage, error) {
	words := strings.Fields(in.Args)
	if len(words) > 0 && strings.HasPrefix(words[0], "--platform=") {
		words = words[1:]
	}
	switch {
	case len(words) == 1:
		return Stage{Base: words[0]}, nil
	case len(words) == 3 && strings.EqualFold(words[1], "AS"):
		return Stage{Base: words[0], Name: words[2]}, nil
	default:
		return Stage{}, in.unsupported("want FROM [--platform=P] IMAGE [AS NAME]")
	}
}

// logicalLines joins continued lines and drops comments and empty lines.
func logicalLines(r io.Reader) ([]Instruction, error) {
	var (
		out     []Instruction
		pending strings.Builder
		start   int
	)
	scanner := bufio.NewScanner(r)
	for number := 1; scanner.Scan(); number++ {
		text := strings.TrimSpace(scanner.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		if pending.Len() == 0 {
			start = number
		}
		if part, continued := strings.CutSuffix(text, `\`); continued {
			pending.WriteString(strings.TrimSpace(part) + " ")
			continue
		}
		pending.WriteString(text)
		keyword, args, _ := strings.Cut(pending.String(), " ")
		out = append(out, Instruction{Line: start, Keyword: strings.ToUpper(keyword), Args: strings.TrimSpace(args)})
		pending.Reset()
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if pending.Len() > 0 {
		return nil, fmt.Errorf("line %d: %w: the file ends in a continued line", start, ErrUnsupported)
	}
	return out, nil
}
