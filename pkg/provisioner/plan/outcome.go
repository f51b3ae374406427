package plan

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// The API server's documented limit for an event's message.
const maxMessageBytes = 1024

// CreateState tells what is known about a volume after CreateVolume failed with
// err. An error that does not say that the driver is done with the call means
// that a volume may still come into being: the call is then repeated even when
// the claim is deleted meanwhile, until the driver has given a final answer.
func CreateState(err error) controller.ProvisioningState {
	answer, isStatus := status.FromError(err)
	if !isStatus {
		return controller.ProvisioningInBackground
	}
	switch answer.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Aborted:
		return controller.ProvisioningInBackground
	default:
		// ResourceExhausted is final too: another node is only worth a try when
		// the driver has topology.
		return controller.ProvisioningFinished
	}
}

// WorthWaiting tells whether a driver that answered err when it was asked about
// itself may answer otherwise later. Only a method that it does not have, and
// what is no answer of it at all, will not change.
func WorthWaiting(err error) bool {
	answer, isStatus := status.FromError(err)
	return isStatus && answer.Code() != codes.Unimplemented
}

// Unreachable is the error of a call that was not made because nothing answers
// at address. It says what gRPC says when connecting fails.
func Unreachable(address string) error {
	return status.Errorf(codes.Unavailable, "nothing answers at %s", address)
}

// Failure is what claim and PersistentVolume events show of a failed call. It
// deliberately does not unwrap to the gRPC status: the provisioner library
// delays every InvalidArgument by a fixed five minutes, and retries here follow
// the configured back-off alone.
type Failure struct {
	message     string
	nothingMade bool
}

// NewFailure describes err, which came of calling method on the named driver.
// Everything that redact changes in the driver's words stays out of the message.
func NewFailure(method, driver string, err error, redact func(string) string) *Failure {
	answer := status.Convert(err)
	message := fmt.Sprintf("%s of CSI driver %s: %s: %s",
		method, driver, answer.Code(), redact(answer.Message()))
	if hint := hintFor(answer.Code()); hint != "" {
		message = truncate(message, maxMessageBytes-len(hint)-len("; ")) + "; " + hint
	}
	return &Failure{message: truncate(message, maxMessageBytes), nothingMade: nothingMade(answer.Code())}
}

// NothingMade tells, of a failed CreateVolume, whether the driver said for certain
// that there is no volume of the request. It is for a request that an earlier
// process may have made; CreateState is not as careful.
func (f *Failure) NothingMade() bool { return f.nothingMade }

func nothingMade(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.OutOfRange, codes.Unimplemented:
		return true
	default:
		return false
	}
}

// Error implements error.
func (f *Failure) Error() string { return f.message }

func hintFor(code codes.Code) string {
	switch code {
	case codes.Unavailable:
		return "the driver or its storage is unreachable; the call is retried"
	case codes.DeadlineExceeded, codes.Aborted, codes.Canceled:
		return "the driver may still be working on it; the call is retried until it answers"
	case codes.InvalidArgument:
		return "check the StorageClass parameters"
	case codes.ResourceExhausted, codes.OutOfRange:
		return "the storage cannot provide the requested size"
	default:
		return ""
	}
}

func truncate(text string, limit int) string {
	const ellipsis = "..."
	if len(text) <= limit {
		return text
	}
	cut := limit - len(ellipsis)
	// Not in the middle of a character: events must be valid UTF-8.
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut--
	}
	return text[:cut] + ellipsis
}
