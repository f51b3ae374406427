package walkthrough

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const retryInterval = 250 * time.Millisecond

// Run runs steps in a directory.
type Run struct {
	Dir string
	// Replace has pairs of what the page says and what it is here.
	Replace []string
	// Patience is how long a command that only reads is repeated until it prints what the
	// page shows.
	Patience time.Duration
	// Transcript gets the commands and their output, in the words of the page.
	Transcript io.Writer
}

// Do runs a step, and returns what its commands print, in the words of the page. A command
// that fails ends it.
func (r *Run) Do(ctx context.Context, s Step) (output string, err error) {
	if s.File != "" {
		r.show("%s\n", s.Content)
		return "", os.WriteFile(filepath.Join(r.Dir, s.File), []byte(r.here(s.Content)), 0o600)
	}
	for i, command := range s.Commands {
		r.show("$ %s\n", command)
		var want *Output
		if i == len(s.Commands)-1 && readsOnly(command) {
			want = s.Output
		}
		out, err := r.command(ctx, command, output, want)
		r.show("%s", out)
		output += out
		if err != nil {
			return output, fmt.Errorf("line %d: %s: %w: %s", s.Line, command, err, out)
		}
	}
	r.show("\n")
	return output, nil
}

// command runs one, with before as what those before it have printed, and repeats it
// until the output is as wanted.
func (r *Run) command(ctx context.Context, command, before string, want *Output) (string, error) {
	deadline := time.Now().Add(r.Patience)
	for {
		out, err := r.bash(ctx, command)
		if want == nil || err == nil && want.Shows(before+out) || time.Now().After(deadline) {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-time.After(retryInterval):
		}
	}
}

func (r *Run) bash(ctx context.Context, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", r.here(command))
	cmd.Dir = r.Dir
	out, err := cmd.CombinedOutput()
	return Tidy(r.onPage(string(out))), err
}

// readsOnly tells whether a command can be repeated.
func readsOnly(command string) bool {
	for _, reads := range []string{"kubectl get ", "ls ", "find ", "grep "} {
		if strings.HasPrefix(command, reads) {
			return true
		}
	}
	return strings.HasPrefix(command, "kubectl -n ") && strings.Contains(command, " get ")
}

// here is a text of the page in the words of this place.
func (r *Run) here(text string) string { return strings.NewReplacer(r.Replace...).Replace(text) }

// onPage is the reverse of here.
func (r *Run) onPage(text string) string {
	var pairs []string
	for i := 0; i+1 < len(r.Replace); i += 2 {
		pairs = append(pairs, r.Replace[i+1], r.Replace[i])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func (r *Run) show(format string, args ...any) {
	_, _ = fmt.Fprintf(r.Transcript, format, args...)
}
