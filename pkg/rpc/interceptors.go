package rpc

import (
	"context"
	"fmt"
	"path"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
)

// probe is called every few seconds, and its success is not worth a log line.
const probe = "Probe"

// observe measures and logs every call, with secrets stripped, and puts a logger that
// identifies the call into its context.
func observe(log klog.Logger, durations *prometheus.HistogramVec) grpc.UnaryServerInterceptor {
	var calls atomic.Uint64
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		method := path.Base(info.FullMethod)
		log := log.WithValues(logkeys.Method, method, logkeys.Call, calls.Add(1))
		level := 2
		if method == probe {
			level = 6
		}
		log.V(level+2).Info("Request", logkeys.Request, protosanitizer.StripSecrets(req))
		began := time.Now()
		resp, err := handler(klog.NewContext(ctx, log), req)
		took := time.Since(began)
		durations.WithLabelValues(method, status.Code(err).String()).Observe(took.Seconds())
		if err != nil {
			log.Error(err, "Call failed", logkeys.Code, status.Code(err).String(), logkeys.Duration, took, logkeys.Request, protosanitizer.StripSecrets(req))
			return resp, err
		}
		log.V(level).Info("Call done", logkeys.Duration, took)
		log.V(level+2).Info("Response", logkeys.Response, protosanitizer.StripSecrets(resp))
		return resp, nil
	}
}

func newDurations() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "nfsplugin_rpc_duration_seconds",
		Help: "Time from a CSI call to its answer, by method and gRPC code.",
		// From a stat on a mounted share to kubelet's timeout of two minutes.
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
	}, []string{"method", "code"})
}

// recoverPanics turns a panic into INTERNAL: one bad call must not end all others.
func recoverPanics(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			what := fmt.Errorf("panic: %s", strip(fmt.Sprint(p), secretsOf(req)))
			klog.FromContext(ctx).Error(what, "A call panicked", logkeys.Stack, string(debug.Stack()))
			resp, err = nil, status.Error(codes.Internal, what.Error())
		}
	}()
	return handler(ctx, req)
}
