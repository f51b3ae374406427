package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestVersion(t *testing.T) {
	build(t)
	output, err := exec.CommandContext(t.Context(), os.Getenv(provisionerEnv), "--version").Output()
	if name, version, _ := strings.Cut(strings.TrimSpace(string(output)), " "); err != nil || name != "csi-provisioner" || !strings.HasPrefix(version, "v") {
		t.Errorf("--version says %q, %v", output, err)
	}
}

func TestHTTPEndpoint(t *testing.T) {
	w := newWorld(t)
	r := w.start("--enable-pprof", "--metrics-path=/figures")
	for path, want := range map[string]string{
		"/healthz":                       "",
		"/figures":                       "process_resident_memory_bytes",
		"/debug/pprof/goroutine?debug=1": "goroutine profile",
	} {
		if body, err := r.get(t.Context(), path); err != nil || !strings.Contains(body, want) {
			t.Errorf("%s lacks %q: %v", path, want, err)
		}
	}
	quiet := w.start()
	for _, path := range []string{"/debug/pprof/", "/healthz/leader-election"} {
		if _, err := quiet.get(t.Context(), path); err == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("%s is served where nobody asked for it: %v", path, err)
		}
	}
}

// A driver that fails for long is not told about with every try.
func TestFailuresDoNotFlood(t *testing.T) {
	w := newWorld(t)
	w.driver.OnCreate(func(context.Context, *csi.CreateVolumeRequest, func() (*csi.CreateVolumeResponse, error)) (*csi.CreateVolumeResponse, error) {
		return nil, status.Error(codes.Internal, "out of order")
	})
	r := w.start("--retry-interval-max=50ms")
	w.createClaim("data")
	w.awaitTries(r, 40)
	if messages := w.messages("data", "ProvisioningFailed"); len(messages) != 1 ||
		!strings.HasSuffix(messages[0], ": Internal: out of order; next try in 50ms") {
		t.Errorf("40 failures are events %q", messages)
	}
	w.driver.OnCreate(nil)
	w.awaitBound("data")
}

// Requests are rate limited only if the flags say so.
func TestRateLimit(t *testing.T) {
	w := newWorld(t)
	const claims, qps, writes = 10, 20, 1
	for i := range claims {
		w.createClaim(fmt.Sprintf("claim-%d", i))
	}
	w.start(fmt.Sprintf("--kube-api-qps=%d", qps), "--kube-api-burst=1")
	began := time.Now()
	for i := range claims {
		w.awaitBound(fmt.Sprintf("claim-%d", i))
	}
	// Events are sent by a client of their own.
	if took, least := time.Since(began), (claims*writes-1)*time.Second/qps; took < least {
		t.Errorf("%d claims took %s at %d requests a second, want at least %s", claims, took, qps, least)
	}
}
