package provisioner

import (
	"context"

	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// callLevel is the verbosity at which calls are logged, as csi-lib-utils has it.
const callLevel = 5

// quiet has nothing logged. What csi-lib-utils says of calls has the driver's
// errors as they are, and client-go has whole objects: with a secret in them.
func quiet(ctx context.Context) context.Context {
	return klog.NewContext(ctx, klog.Logger{})
}

func call[Request, Response any](
	ctx context.Context, d *Driver, name string,
	method func(context.Context, *Request, ...grpc.CallOption) (*Response, error),
	request *Request,
) (*Response, error) {
	if d.away.Load() {
		// Without this, calls would wait out their timeout and hold a worker each.
		return nil, plan.Unreachable(d.config.Address)
	}
	logger := klog.FromContext(ctx).V(callLevel)
	ctx, cancel := context.WithTimeout(quiet(ctx), d.config.Timeout)
	defer cancel()
	logger.Info("GRPC call", "method", name, "request", protosanitizer.StripSecrets(request))
	response, err := method(ctx, request)
	if logger.Enabled() {
		logger.Info("GRPC response", "method", name, "response", protosanitizer.StripSecrets(response), "err", redacted(request, err))
	}
	return response, err
}

// redacted is the error's text without the secrets that the request has.
func redacted(request any, err error) string {
	if err == nil {
		return ""
	}
	if r, ok := request.(interface{ GetSecrets() map[string]string }); ok {
		return redactor(r.GetSecrets())(err.Error())
	}
	return err.Error()
}
