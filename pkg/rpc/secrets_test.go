package rpc

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// talkative fails with its request in the error, as a wrapped error may have it.
type talkative struct {
	csi.UnimplementedControllerServer
}

func (*talkative) CreateVolume(_ context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if req.GetName() == "bug" {
		panic(fmt.Sprint(req.GetSecrets()))
	}
	return nil, status.Errorf(codes.InvalidArgument, "create %s: mount option %q: not accepted", req.GetName(), req.GetSecrets()["mountOptions"])
}

func (*talkative) DeleteVolume(_ context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return nil, status.Errorf(codes.InvalidArgument, "mount option %q of %s", strings.Split(req.GetSecrets()["mountOptions"], ",")[1], req.GetVolumeId())
}

func TestSecretsStayOutOfLogsAndErrors(t *testing.T) {
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(10)))
	ctx, stop := context.WithCancel(klog.NewContext(t.Context(), logger))
	defer stop()
	socket := filepath.Join(t.TempDir(), "csi.sock")
	server, err := New(ctx, Config{
		Endpoint: socket, Metrics: prometheus.NewRegistry(), DrainTimeout: time.Second,
		Register: func(g grpc.ServiceRegistrar) { csi.RegisterControllerServer(g, &talkative{}) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	client := csi.NewControllerClient(dial(t, socket))
	secrets := map[string]string{"password": "hunter2", "mountOptions": "hard,sec=krb5p:s3cr3t"}
	var said []string
	for _, name := range []string{"vol-1", "bug"} {
		_, err := client.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: name, Secrets: secrets})
		said = append(said, err.Error())
	}
	_, err = client.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "vol-2", Secrets: secrets})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("the code is lost: %v", err)
	}
	said = append(said, err.Error())
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	said = append(said, logger.GetSink().(ktesting.Underlier).GetBuffer().String())
	for _, text := range said {
		for _, secret := range []string{"hunter2", "s3cr3t", "krb5p"} {
			if strings.Contains(text, secret) {
				t.Errorf("%q is in %s", secret, text)
			}
		}
	}
	for i, want := range []string{"vol-1", "panic", "vol-2", "***stripped***"} {
		if !strings.Contains(said[i], want) {
			t.Errorf("%q is missing in %s", want, said[i])
		}
	}
}
