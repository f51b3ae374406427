package integration

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// killTimeEnv is how long TestLeaderKilledRepeatedly kills, 10s without it.
	killTimeEnv = "KILL_TIME"

	killInterval = 2 * time.Second

	// settleTime covers the back-off of those who watch an API server that was
	// away, and the PV controller's own period.
	settleTime = 2 * time.Minute

	killClaims = 300
)

// startRace runs csi-provisioner with the race detector. Faults are worth a test also
// without: TestRacesWouldBeSeen says whether they were tested for races.
func (w *world) startRace(args ...string) *replica {
	w.Helper()
	program := cmp.Or(os.Getenv(raceEnv), os.Getenv(provisionerEnv))
	r := w.startProgram(program, append([]string{"-v=2", "--retry-interval-max=1s", "--timeout=5s"}, args...)...)
	w.Cleanup(func() {
		if log, err := os.ReadFile(r.Log); err != nil || strings.Contains(string(log), "DATA RACE") {
			w.Errorf("there was a data race (%v):\n%s", err, log)
		}
	})
	return r
}

// detectsRaces tells whether a program was built with the race detector.
func detectsRaces(program string) (bool, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return false, err
	}
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}), nil
}

// A program without the detector has no data races in its log, whatever it does.
func TestRacesWouldBeSeen(t *testing.T) {
	build(t)
	program := os.Getenv(raceEnv)
	if program == "" {
		t.Skipf("%s is not set: data races of csi-provisioner go unseen", raceEnv)
	}
	if detects, err := detectsRaces(program); err != nil || !detects {
		t.Errorf("%s=%s was built without -race (%v): its data races go unseen", raceEnv, program, err)
	}
}

// fickle takes its time, and fails now and then with the volume made all the same.
func fickle(ctx context.Context, _ *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
	response, err := next()
	select {
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-time.After(time.Duration(rand.IntN(50)) * time.Millisecond):
	}
	if rand.IntN(10) == 0 {
		return nil, status.Error(codes.Aborted, "still at it")
	}
	return response, err
}

// settled waits until the claims that are left are bound, each to its own volume,
// and neither the cluster nor the driver has another volume.
func (w *world) settled() {
	w.Helper()
	w.within(settleTime, "every claim has its volume, and there is no other", func() error {
		claims, err := w.client.CoreV1().PersistentVolumeClaims(w.name).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var want []string
		for _, claim := range claims.Items {
			if claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName != "pvc-"+string(claim.UID) {
				return fmt.Errorf("claim %s is %s to %q", claim.Name, claim.Status.Phase, claim.Spec.VolumeName)
			}
			want = append(want, claim.Spec.VolumeName)
		}
		slices.Sort(want)
		list, err := w.client.CoreV1().PersistentVolumes().List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		var saved []string
		for _, volume := range list.Items {
			if volume.Spec.StorageClassName == w.name {
				saved = append(saved, volume.Name)
			}
		}
		slices.Sort(saved)
		made := slices.Sorted(maps.Keys(w.driver.Volumes()))
		if !slices.Equal(saved, want) || !slices.Equal(made, want) {
			return fmt.Errorf("%d claims, %d PersistentVolumes, %d volumes at the driver: too many PersistentVolumes are %v, too many volumes %v",
				len(want), len(saved), len(made), without(saved, want), without(made, want))
		}
		return nil
	})
}

// without is all without some, sorted.
func without(all, some []string) []string {
	return sets.List(sets.New(all...).Delete(some...))
}

// The claim is gone when the provisioner comes back.
func TestClaimDeletedBetweenCreateAndSave(t *testing.T) {
	w := newWorld(t)
	entered, _ := w.slow()
	slow := w.start()
	w.driver.OnCreate(func(ctx context.Context, request *csi.CreateVolumeRequest, next func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		response, err := next()
		entered <- request
		<-ctx.Done()
		return response, err
	})
	w.createClaim("data")
	w.receive(entered)
	if err := slow.Kill(); err != nil {
		t.Fatal(err)
	}
	w.deleteClaim("data")
	w.driver.OnCreate(nil)
	if volumes := w.driver.Volumes(); len(volumes) != 1 {
		t.Fatalf("the driver has %v, want the volume of the claim", volumes)
	}
	w.start()
	w.settled()
}

func TestLeaderKilledRepeatedly(t *testing.T) {
	w := newLeaderWorld(t)
	w.driver.OnCreate(fickle)
	killTime := 10 * time.Second
	if text := os.Getenv(killTimeEnv); text != "" {
		var err error
		if killTime, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	replicas := []*replica{w.startFast(), w.startFast()}
	made := make(chan error, 1)
	go func() { made <- w.makeAndDelete(t.Context(), killClaims, killTime) }()
	killed := 0
	for end := time.Now().Add(killTime); time.Now().Before(end); {
		time.Sleep(killInterval)
		if at := slices.IndexFunc(replicas, w.leads); at >= 0 {
			if err := replicas[at].Kill(); err != nil {
				t.Fatal(err)
			}
			killed++
		}
		w.revive(replicas)
	}
	if err := <-made; err != nil {
		t.Error(err)
	}
	if killed == 0 {
		t.Error("no leader was killed")
	}
	w.settled()
}

// startFast is startReplica with a lease that is soon taken over.
func (w *world) startFast() *replica {
	w.Helper()
	return w.startRace("--leader-election", "--leader-election-lease-duration=2s",
		"--leader-election-renew-deadline=1700ms", "--leader-election-retry-period=200ms")
}

// revive starts those that have ended again, as kubelet does.
func (w *world) revive(replicas []*replica) {
	w.Helper()
	for i, r := range replicas {
		select {
		case <-r.Exited():
			replicas[i] = w.startFast()
		default:
		}
	}
}

func (w *world) leads(r *replica) bool {
	metrics, err := r.get(w.Context(), "/metrics")
	return err == nil && strings.Contains(metrics, `leader_election_master_status{name="`+leaseName+`"} 1`)
}

// makeAndDelete makes claims, spread over the time, and deletes every other one a
// moment after it was made.
func (w *world) makeAndDelete(ctx context.Context, count int, over time.Duration) error {
	claims := w.client.CoreV1().PersistentVolumeClaims(w.name)
	for i := range count {
		time.Sleep(over / time.Duration(count))
		if _, err := claims.Create(ctx, w.claim(fmt.Sprintf("claim-%d", i)), metav1.CreateOptions{}); err != nil {
			return err
		}
		if late := i - rand.IntN(10); i%2 == 0 && late >= 0 {
			name := fmt.Sprintf("claim-%d", late-late%2)
			// It may have been deleted already.
			if err := claims.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	return nil
}

// Not parallel, for every test needs the API server.
func TestAPIServerRestart(t *testing.T) {
	w := build(t)
	w.driverName = w.name
	w.setUp()
	w.driver.OnCreate(fickle)
	w.startRace("--worker-threads=10")
	for i := range 200 {
		w.createClaim(fmt.Sprintf("claim-%d", i))
	}
	w.eventually("it is in the middle of it", func() error {
		if made := len(w.driver.Volumes()); made < 20 {
			return fmt.Errorf("%d volumes", made)
		}
		return nil
	})
	restart, err := shared.Crash("kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	if made := len(w.driver.Volumes()); made == 200 {
		t.Error("it was done when the API server went away")
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := restart(ctx); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 200; i += 2 {
		w.deleteClaim(fmt.Sprintf("claim-%d", i))
	}
	w.settled()
}

// Every connection to the API server is cut again and again, and the driver is
// away in between.
func TestConnectionsCut(t *testing.T) {
	w := newWorld(t)
	w.driver.OnCreate(fickle)
	proxy := w.proxyAPIServer()
	w.startRace("--kubeconfig=" + proxy.kubeconfig)
	for i := range 100 {
		w.createClaim(fmt.Sprintf("claim-%d", i))
		if i%10 == 5 {
			proxy.cut()
		}
		if i == 30 {
			if err := w.driver.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		if i == 60 {
			if err := w.driver.Start(w.socket()); err != nil {
				t.Fatal(err)
			}
		}
		if i >= 20 && i%2 == 0 {
			w.deleteClaim(fmt.Sprintf("claim-%d", i-20))
		}
	}
	w.settled()
	if proxy.wasCut() == 0 {
		t.Error("no connection was cut")
	}
}
