package store

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// One name is asked for with two directories, of two controllers. Whatever step
// one of them is at, or is killed at, when the other one comes: never both.
func TestOneNameIsOneVolume(t *testing.T) {
	for name, dirs := range map[string][2]string{
		"two directories":    {"team/a", "team/b"},
		"its own, then not":  {"", "team/b"},
		"not its own, first": {"team/a", ""},
		"kept directories":   {"team/a", "team/b"},
	} {
		for _, kill := range []bool{false, true} {
			for n := 1; ; n++ {
				l := newLab(t)
				first, second := l.request("pvc-1"), l.request("pvc-1")
				first.Params.SubDir, second.Params.SubDir = dirs[0], dirs[1]
				if name == "kept directories" {
					l.put(t, "team/a/data")
					l.put(t, "team/b/data")
				}
				other := l.start(t)
				made := map[string]bool{}
				note := func(v Created, err error) {
					if err == nil {
						made[v.ID.SubDir] = true
					} else if !errors.Is(err, volume.ErrIncompatible) && !errors.Is(err, volume.ErrInProgress) {
						t.Errorf("%s, step %d: %v", name, n, err)
					}
				}
				steps, reached := 0, false
				ctx, cancel := context.WithCancel(t.Context())
				l.step = func(ctx context.Context, _ string) error {
					if steps++; steps == n {
						reached = true
						note(other.Create(context.WithoutCancel(ctx), second))
						if kill {
							cancel()
							runtime.Goexit()
						}
					}
					return nil
				}
				v, err := l.Create(ctx, first)
				cancel()
				l.exports.Wait()
				if !reached {
					break
				}
				if !kill {
					note(v, err)
				}
				// Both repeat their calls, in turn.
				l.Store = l.start(t)
				note(l.Create(t.Context(), first))
				note(other.Create(t.Context(), second))
				note(l.Create(t.Context(), first))
				if len(made) > 1 {
					t.Errorf("%s, kill %v, step %d: the name has the directories %v", name, kill, n, made)
				}
				page, err := l.List(t.Context(), 0, "")
				if err != nil || len(page.Volumes) > 1 {
					t.Errorf("%s, kill %v, step %d: there are %v, %v", name, kill, n, page.Volumes, err)
				}
			}
		}
	}
}

// The controller that made the record fails and takes it back, while another one
// makes the directory: there is no directory without its record.
func TestClaimTakenBackMeanwhile(t *testing.T) {
	l := newLab(t)
	other := l.start(t)
	failed, full := make(chan struct{}), errors.New("the disk was full for a moment")
	made := make(chan error, 1)
	l.step = func(_ context.Context, step string) error {
		if step != "create directory" {
			return nil
		}
		atIt := make(chan struct{})
		other.step = func(_ context.Context, step string) error {
			if step == "create directory" {
				close(atIt)
				<-failed
			}
			return nil
		}
		go func() {
			_, err := other.Create(t.Context(), l.request("pvc-1"))
			made <- err
		}()
		<-atIt
		return full
	}
	if _, err := l.Create(t.Context(), l.request("pvc-1")); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	l.mustHave(t)
	close(failed)
	if err := <-made; err != nil {
		t.Error(err)
	}
	l.mustHave(t, live("pvc-1")...)
}
