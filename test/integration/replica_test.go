package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nfs-csi/nfs-csi/test/integration/cluster"
)

// replica is one csi-provisioner.
type replica struct {
	*cluster.Process
	address string
}

// start runs csi-provisioner; what it wrote is shown when the test fails.
func (w *world) start(args ...string) *replica {
	w.Helper()
	return w.startProgram(os.Getenv(provisionerEnv), args...)
}

func (w *world) startProgram(program string, args ...string) *replica {
	w.Helper()
	return w.run(program, w.args(args)...)
}

func (w *world) args(more []string) []string {
	return append([]string{
		"--csi-address=" + w.socket(),
		"--kubeconfig=" + w.kubeconfig,
		"--retry-interval-start=50ms",
		"--leader-election-namespace=" + w.account.namespace,
		"-v=5",
	}, more...)
}

// run starts a program and waits until it serves.
func (w *world) run(program string, args ...string) *replica {
	w.Helper()
	address := freeAddress(w.T)
	process, err := cluster.StartProcess(w.dir, "csi-provisioner", program, append(args, "--http-endpoint="+address)...)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := process.Kill(); err != nil {
			w.Error(err)
		}
		if w.Failed() {
			w.Log(process.Tail())
		}
	})
	r := &replica{Process: process, address: address}
	w.eventually("csi-provisioner serves /healthz", func() error {
		_, err := r.get(w.Context(), "/healthz")
		return err
	})
	return r
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func (r *replica) get(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.address+path, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", path, response.Status, body)
	}
	return string(body), err
}

// logged tells whether a process has written a text.
func logged(r *replica, text string) error {
	log, err := os.ReadFile(r.Log)
	if err == nil && !strings.Contains(string(log), text) {
		err = fmt.Errorf("it has not logged %q", text)
	}
	return err
}

// awaitMetrics waits, as an operation is counted after what it did can be seen.
func (w *world) awaitMetrics(r *replica, wanted ...string) {
	w.Helper()
	for _, want := range wanted {
		w.eventually("there is a metric "+want, func() error {
			metrics, err := r.get(w.Context(), "/metrics")
			if err == nil && !strings.Contains(metrics, want) {
				err = errors.New("there is none")
			}
			return err
		})
	}
}

// awaitTries waits until that many tries to make volumes of the world have failed.
func (w *world) awaitTries(r *replica, failed int) {
	w.Helper()
	counter := regexp.MustCompile(`(?m)^controller_persistentvolumeclaim_provision_failed_total\{class="` + w.name + `",.*\} (\d+)$`)
	w.eventually(fmt.Sprintf("%d tries have failed", failed), func() error {
		metrics, err := r.get(w.Context(), "/metrics")
		if err != nil {
			return err
		}
		total := 0
		for _, match := range counter.FindAllStringSubmatch(metrics, -1) {
			count, err := strconv.Atoi(match[1])
			if err != nil {
				return err
			}
			total += count
		}
		if total < failed {
			return fmt.Errorf("%d have", total)
		}
		return nil
	})
}

// wait returns how a process ended.
func (w *world) wait(process *replica) error {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	return process.Wait(ctx)
}
