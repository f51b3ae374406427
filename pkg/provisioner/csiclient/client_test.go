package csiclient

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

func TestConnectWaitsForTheDriver(t *testing.T) {
	scripted := drivertest.New(driverName)
	scripted.SetReady(false)
	scripted.SetCapabilities(
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	)
	socket := filepath.Join(t.TempDir(), "csi.sock")
	type result struct {
		driver *Client
		err    error
	}
	connected := make(chan result, 1)
	go func() {
		driver, err := Connect(t.Context(), Config{Address: "unix://" + socket, Timeout: patience})
		connected <- result{driver, err}
	}()
	select {
	case got := <-connected:
		t.Fatalf("Connect() = %v without a socket", got.err)
	case <-time.After(50 * time.Millisecond):
	}
	if err := scripted.Start(socket); err != nil {
		t.Fatal(err)
	}
	defer scripted.Stop()
	select {
	case got := <-connected:
		t.Fatalf("Connect() = %v before the driver was ready", got.err)
	case <-time.After(50 * time.Millisecond):
	}
	scripted.SetReady(true)
	got := <-connected
	if got.err != nil {
		t.Fatal(got.err)
	}
	defer got.driver.Close()
	if want := (plan.Capabilities{DriverName: driverName, Volumes: true, SingleNodeMultiWriter: true}); got.driver.Capabilities() != want {
		t.Errorf("Capabilities() = %+v, want %+v", got.driver.Capabilities(), want)
	}
}

func TestConnectStopsWaiting(t *testing.T) {
	for name, start := range map[string]bool{"no socket": false, "not ready": true} {
		t.Run(name, func(t *testing.T) {
			scripted := drivertest.New(driverName)
			scripted.SetReady(false)
			socket := filepath.Join(t.TempDir(), "csi.sock")
			if start {
				if err := scripted.Start(socket); err != nil {
					t.Fatal(err)
				}
				defer scripted.Stop()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := Connect(ctx, Config{Address: socket, Timeout: patience}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Connect() = %v, want %v", err, context.DeadlineExceeded)
			}
		})
	}
}

func TestConnectRefuses(t *testing.T) {
	tests := map[string]struct {
		change func(*drivertest.Driver)
		says   string
	}{
		"no controller": {func(d *drivertest.Driver) { d.SetServices() }, "no controller service"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			scripted := drivertest.New(driverName)
			test.change(scripted)
			_, err := Connect(t.Context(), Config{Address: startDriver(t, scripted), Timeout: patience})
			if !errors.Is(err, ErrUnsupportedDriver) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("Connect() = %v, want ErrUnsupportedDriver that says %q", err, test.says)
			}
		})
	}
}

func TestConnectRefusesBadConfig(t *testing.T) {
	for _, config := range []Config{
		{Address: "", Timeout: patience},
		{Address: "run/csi.sock", Timeout: patience},
		{Address: "tcp://127.0.0.1:1", Timeout: patience},
		{Address: "/run/csi.sock"},
	} {
		if _, err := Connect(t.Context(), config); err == nil {
			t.Errorf("Connect(%+v) accepted", config)
		}
	}
}

func TestCallsAreLimited(t *testing.T) {
	scripted := drivertest.New(driverName)
	scripted.OnDelete(func(ctx context.Context, _ *csi.DeleteVolumeRequest, _ func() (*csi.DeleteVolumeResponse, error)) (*csi.DeleteVolumeResponse, error) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	})
	driver, err := Connect(t.Context(), Config{Address: startDriver(t, scripted), Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer driver.Close()
	if _, err := driver.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "x"}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("DeleteVolume() = %v, want DeadlineExceeded", err)
	}
}

func TestDriverRestart(t *testing.T) {
	scripted := drivertest.New(driverName)
	socket := startDriver(t, scripted)
	driver := connect(t, socket)
	if err := scripted.Stop(); err != nil {
		t.Fatal(err)
	}
	call := func() (answer codes.Code, late bool) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := driver.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "a"})
		return status.Code(err), ctx.Err() != nil
	}
	eventually(t, "a call notices that the driver is away", func() bool {
		call()
		return driver.disconnected.Load()
	})
	for range 3 {
		if answer, late := call(); answer != codes.Unavailable || late {
			t.Errorf("a call while the driver is away is answered %s, late: %t, want Unavailable at once", answer, late)
		}
	}
	scripted.SetCapabilities(
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	)
	if err := scripted.Start(socket); err != nil {
		t.Fatal(err)
	}
	eventually(t, "calls work again", func() bool {
		_, err := driver.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "a"})
		return err == nil
	})
	if !driver.Capabilities().SingleNodeMultiWriter {
		t.Error("capabilities were not read again")
	}
	select {
	case err := <-driver.Lost():
		t.Errorf("Lost() delivered %v after a mere restart", err)
	default:
	}
}

// Without a call.
func TestRestartIsNoticed(t *testing.T) {
	scripted := drivertest.New(driverName)
	socket := startDriver(t, scripted)
	driver := connect(t, socket)
	select {
	case <-driver.Restarted():
		t.Error("Restarted() delivered a value without a restart")
	default:
	}
	for range 2 {
		if err := errors.Join(scripted.Stop(), scripted.Start(socket)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-driver.Restarted():
		case <-time.After(patience):
			t.Fatal("Restarted() delivers nothing")
		}
		eventually(t, "calls work again", func() bool {
			_, err := driver.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "x"})
			return err == nil
		})
	}
}

// The topology at startup decides which volumes are its own.
func TestDriverComesBackOnAnotherNode(t *testing.T) {
	scripted := drivertest.New(driverName)
	scripted.SetServices(csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	scripted.SetNodeTopology(map[string]string{"zone": "a"})
	socket := startDriver(t, scripted)
	driver, err := Connect(t.Context(), Config{Address: socket, Timeout: patience, NodeTopology: true})
	if err != nil {
		t.Fatal(err)
	}
	defer driver.Close()
	if err := scripted.Stop(); err != nil {
		t.Fatal(err)
	}
	scripted.SetNodeTopology(map[string]string{"zone": "b"})
	if err := scripted.Start(socket); err != nil {
		t.Fatal(err)
	}
	var lost error
	eventually(t, "the change is noticed", func() bool {
		if _, err := driver.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "a"}); err == nil {
			t.Fatal("a call went through to the other node's driver")
		}
		select {
		case lost = <-driver.Lost():
			return true
		default:
			return false
		}
	})
	if !errors.Is(lost, ErrDriverChanged) {
		t.Errorf("Lost() delivered %v, want %v", lost, ErrDriverChanged)
	}
}

func TestAnotherDriverOnTheSocket(t *testing.T) {
	tests := map[string]struct {
		change func(*drivertest.Driver)
		want   error
	}{
		"other name":         {func(d *drivertest.Driver) { d.Rename("other.example") }, ErrDriverChanged},
		"no controller":      {func(d *drivertest.Driver) { d.SetServices() }, ErrUnsupportedDriver},
		"cannot create more": {func(d *drivertest.Driver) { d.SetCapabilities() }, ErrDriverChanged},
		"other topology": {func(d *drivertest.Driver) {
			d.SetServices(csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
		}, ErrDriverChanged},
		"attaches volumes": {func(d *drivertest.Driver) {
			d.SetCapabilities(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
		}, ErrDriverChanged},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			scripted := drivertest.New(driverName)
			socket := startDriver(t, scripted)
			driver := connect(t, socket)
			if err := scripted.Stop(); err != nil {
				t.Fatal(err)
			}
			test.change(scripted)
			if err := scripted.Start(socket); err != nil {
				t.Fatal(err)
			}
			var lost error
			eventually(t, "the change is noticed", func() bool {
				_, err := driver.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "a"})
				if err == nil {
					t.Fatal("a call went through to the other driver")
				}
				select {
				case lost = <-driver.Lost():
					return true
				default:
					return false
				}
			})
			if !errors.Is(lost, test.want) {
				t.Errorf("Lost() delivered %v, want %v", lost, test.want)
			}
			if creates := scripted.Creates(); len(creates) != 0 {
				t.Errorf("the other driver got %v", creates)
			}
		})
	}
}

func TestNodeTopology(t *testing.T) {
	driver := drivertest.New(driverName)
	driver.SetServices(csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	socket := startDriver(t, driver)
	ask := func() (*Client, error) {
		return Connect(t.Context(), Config{Address: socket, Timeout: patience, NodeTopology: true})
	}
	if _, err := ask(); !errors.Is(err, ErrUnsupportedDriver) {
		t.Errorf("without a place: %v", err)
	}
	driver.SetNodeTopology(map[string]string{"zone": "a"})
	connected, err := ask()
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	if got := connected.Capabilities().NodeTopology.GetSegments()["zone"]; got != "a" {
		t.Errorf("it is in %q", got)
	}
	// It moves to another zone.
	if err := driver.Stop(); err != nil {
		t.Fatal(err)
	}
	driver.SetNodeTopology(map[string]string{"zone": "b"})
	if err := driver.Start(socket); err != nil {
		t.Fatal(err)
	}
	eventually(t, "that is noticed", func() bool {
		_, _ = connected.GetCapacity(t.Context(), &csi.GetCapacityRequest{})
		select {
		case err := <-connected.Lost():
			return errors.Is(err, ErrDriverChanged)
		default:
			return false
		}
	})
	driver.SetServices(csi.PluginCapability_Service_CONTROLLER_SERVICE)
	if _, err := ask(); !errors.Is(err, ErrUnsupportedDriver) {
		t.Errorf("without topology: %v", err)
	}
}
