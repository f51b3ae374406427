package main

import (
	"context"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nfs-csi/nfs-csi/pkg/capacity"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/csiclient"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/drivertest"
)

// As with external-provisioner, the flag does not keep csi-provisioner from starting.
func TestCapacityOfADriverThatDeclaresNone(t *testing.T) {
	driver := drivertest.New("nfs.example")
	driver.SetCapabilities(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME)
	client := drivertest.Connected(t, func(ctx context.Context) (*csiclient.Client, error) {
		return csiclient.Connect(ctx, csiclient.Config{Address: drivertest.Serve(t, driver), Timeout: patience})
	})
	if client.Capabilities().Capacity {
		t.Fatal("the driver declares GET_CAPACITY")
	}
	publisher, err := newPublisher(t.Context(), Config{
		Master:   "http://127.0.0.1:1",
		Settings: provisioner.Settings{RetryMin: time.Second, RetryMax: time.Second},
		Capacity: CapacityConfig{Enabled: true, Threads: 1, PollInterval: time.Minute, OwnerLevel: capacity.NoOwner, Namespace: "ns"},
	}, client, informers.NewSharedInformerFactory(fake.NewClientset(), 0))
	if err != nil || publisher == nil {
		t.Errorf("publisher %v, %v", publisher, err)
	}
}
