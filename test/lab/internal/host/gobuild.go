package host

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"
)

// goBuild is a build that takes minutes: it says how far it is, and keeps what the go
// tool says in a log.
type goBuild struct {
	name  string // of what is built
	dir   string // of its package
	out   string
	flags []string
	log   string
	every time.Duration // between two lines of progress
}

func (b goBuild) run(ctx context.Context, w io.Writer) error {
	log, err := os.Create(b.log)
	if err != nil {
		return err
	}
	defer log.Close()
	done := &buildProgress{name: b.name, log: log, began: time.Now()}
	stop := done.tell(w, b.every)
	err = b.build(ctx, done)
	stop()
	if err != nil {
		return b.failed(err)
	}
	fmt.Fprintf(w, "lab: %s: built in %s\n", b.name, time.Since(done.began).Round(time.Second))
	return nil
}

// build first lists the packages, which also downloads their modules.
func (b goBuild) build(ctx context.Context, done *buildProgress) error {
	var packages bytes.Buffer
	if err := b.goTool(ctx, &packages, done, "list", "-deps", "."); err != nil {
		return err
	}
	done.total.Store(int64(bytes.Count(packages.Bytes(), []byte("\n"))))
	args := append([]string{"build", "-v", "-o", b.out}, b.flags...)
	return b.goTool(ctx, done, done, append(args, ".")...)
}

func (b goBuild) goTool(ctx context.Context, stdout, stderr io.Writer, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s: %w", args[0], err)
	}
	return nil
}

func (b goBuild) failed(err error) error {
	lines, tailErr := tail(b.log)
	if tailErr != nil {
		return fmt.Errorf("build %s in %s: %w", b.name, b.dir, err)
	}
	return fmt.Errorf("build %s in %s: %w; the last lines of %s:\n  | %s", b.name, b.dir, err, b.log, strings.Join(lines, "\n  | "))
}

// buildProgress counts what the go tool prints, a line for each module that it
// downloads and, with -v, for each package that it compiles.
type buildProgress struct {
	name              string
	log               io.Writer
	began             time.Time
	total             atomic.Int64 // packages, 0 while it is not known
	modules, packages atomic.Int64
}

func (p *buildProgress) Write(output []byte) (int, error) {
	// The go tool writes whole lines.
	for line := range bytes.Lines(output) {
		if bytes.HasPrefix(line, []byte("go: downloading ")) {
			p.modules.Add(1)
		} else {
			p.packages.Add(1)
		}
	}
	return p.log.Write(output)
}

func (p *buildProgress) String() string {
	took := time.Since(p.began).Round(time.Second)
	if total := p.total.Load(); total > 0 {
		return fmt.Sprintf("%s: %d of %d packages compiled, %s", p.name, p.packages.Load(), total, took)
	}
	return fmt.Sprintf("%s: %d modules downloaded, %s", p.name, p.modules.Load(), took)
}

// tell prints the progress again and again until it is stopped.
func (p *buildProgress) tell(w io.Writer, every time.Duration) (stop func()) {
	ended, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				fmt.Fprintf(w, "lab: %s\n", p)
			}
		}
	}()
	return func() {
		close(ended)
		<-told
	}
}
