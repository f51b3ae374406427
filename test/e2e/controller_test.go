package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestControllerKilledWhileProvisioning kills the controller at the moment the
// volume's directory appears on the server, which is somewhere between the
// start of CreateVolume and the PV being saved. Where exactly is up to chance,
// so it is done several times; TestControllerKilledBeforeVolumeIsSaved leaves
// nothing to chance.
func TestControllerKilledWhileProvisioning(t *testing.T) {
	const rounds = 3
	e := newEnv(t)
	class := e.createClass(nil)
	unsaved := 0
	var volumes []string
	var claims []*corev1.PersistentVolumeClaim
	for range rounds {
		e.waitReady()
		leader := e.leader(time.Now())
		pids := []int{e.find(leader, pluginProgram), e.find(leader, provisionerProgram)}
		claim := e.createClaim(class)
		if err := killOnceThere(t.Context(), filepath.Join(e.export, volumeName(claim)), pids); err != nil {
			t.Fatal(err)
		}
		_, err := e.client.CoreV1().PersistentVolumes().Get(t.Context(), volumeName(claim), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			unsaved++
		}
		e.waitBound(claim)
		claims, volumes = append(claims, claim), append(volumes, volumeName(claim))
		e.expectExactly(class, volumes...)
	}
	t.Logf("%d of %d times the volume was not saved yet", unsaved, rounds)
	for _, claim := range claims {
		e.deleteClaim(claim)
	}
	e.expectExactly(class)
}

// killOnceThere kills the processes as soon as the path exists. It looks without
// pause, since the time between the directory and the PV is a few milliseconds.
func killOnceThere(ctx context.Context, path string, pids []int) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for ctx.Err() == nil {
		_, err := os.Lstat(path)
		if err == nil {
			return kill(pids...)
		}
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("%s did not appear: %w", path, ctx.Err())
}

// TestControllerKilledBeforeVolumeIsSaved keeps the API server from taking the
// PV, so that the kill surely falls between CreateVolume and saving it.
func TestControllerKilledBeforeVolumeIsSaved(t *testing.T) {
	e := newEnv(t)
	e.waitReady()
	class := e.createClass(nil)
	allow := e.denyVolumes(class)
	refusals := e.refusals(class)
	claim := e.createClaim(class)
	directory := filepath.Join(e.export, volumeName(claim))
	e.eventually("the directory exists", func(context.Context) error {
		_, err := os.Stat(directory)
		return err
	})
	e.waitRefused("CreateVolume is over: the volume was to be saved, and refused", class, refusals)

	e.write(volumeName(claim), "before", "the kill\n")
	leader := e.leader(time.Now())
	if err := kill(e.find(leader, provisionerProgram), e.find(leader, pluginProgram)); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	refusals = e.refusals(class)
	e.leader(killed)
	e.waitRefused("the next leader has got the volume again, and was refused", class, refusals)
	if got := e.volumesOf(class); len(got) > 0 {
		t.Fatalf("volumes %q were saved against the policy", got)
	}
	allow()

	e.waitBound(claim)
	e.expectExactly(class, volumeName(claim))
	if got := e.read(volumeName(claim), "before"); got != "the kill\n" {
		t.Errorf("the volume is not the one that was made first: its file holds %q", got)
	}
	e.deleteClaim(claim)
	e.expectExactly(class)
}

// expectExactly checks that the class has these volumes in the cluster and on
// the export, and nothing else anywhere.
func (e *env) expectExactly(class string, volumes ...string) {
	e.t.Helper()
	if got := e.volumesOf(class); !slices.Equal(got, sorted(volumes)) {
		e.t.Errorf("volumes of class %s: %q, want %q", class, got, volumes)
	}
	e.expectOnExport(volumes...)
}
