package csiclient

import (
	"context"

	"github.com/kubernetes-csi/csi-lib-utils/protosanitizer"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"

	"github.com/nfs-csi/nfs-csi/pkg/logkeys"
	"github.com/nfs-csi/nfs-csi/pkg/provisioner/plan"
)

// callLevel is the verbosity at which csi-lib-utils logs calls.
const callLevel = 5

func call[Request, Response any](
	ctx context.Context, c *Client, name string,
	method func(context.Context, *Request, ...grpc.CallOption) (*Response, error),
	request *Request,
) (*Response, error) {
	if c.disconnected.Load() {
		// Otherwise each call would occupy a worker until its timeout.
		return nil, plan.Unreachable(c.config.Address)
	}
	logger := klog.FromContext(ctx).V(callLevel)
	// csi-lib-utils would log the driver's errors unredacted.
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, klog.Logger{}), c.config.Timeout)
	defer cancel()
	logger.Info("GRPC call", logkeys.Method, name, logkeys.Request, protosanitizer.StripSecrets(request))
	response, err := method(ctx, request)
	if logger.Enabled() {
		logger.Info("GRPC response", logkeys.Method, name, logkeys.Response, protosanitizer.StripSecrets(response), logkeys.Err, redacted(request, err))
	}
	return response, err
}

// redacted is the error's text without the secrets of the request.
func redacted(request any, err error) string {
	if err == nil {
		return ""
	}
	if r, ok := request.(interface{ GetSecrets() map[string]string }); ok {
		return plan.Redactor(r.GetSecrets())(err.Error())
	}
	return err.Error()
}
