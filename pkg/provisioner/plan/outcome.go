package plan

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// maxMessageBytes is the API server's limit for the message of an event.
const maxMessageBytes = 1024

// CreateState is the state of a volume after CreateVolume has failed. Unless the error
// is final, the driver may still create the volume: the call is then retried until the
// driver gives a final answer, even if the claim is deleted meanwhile.
func CreateState(err error) controller.ProvisioningState {
	answer, isStatus := status.FromError(err)
	if !isStatus {
		return controller.ProvisioningInBackground
	}
	switch answer.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Aborted:
		return controller.ProvisioningInBackground
	default:
		// So is ResourceExhausted: another node is only worth a try if the driver has
		// topology.
		return controller.ProvisioningFinished
	}
}

// WorthWaiting reports whether a driver that failed to report its capabilities may
// succeed later: unless it lacks the method, or the error is not a response.
func WorthWaiting(err error) bool {
	answer, isStatus := status.FromError(err)
	return isStatus && answer.Code() != codes.Unimplemented
}

// WorthAnnouncingAgain reports whether an announcement that failed may succeed later: not if
// the class is what is wrong, or if the driver does not know the method.
func WorthAnnouncingAgain(err error) bool {
	code := status.Code(err)
	return code != codes.InvalidArgument && code != codes.Unimplemented && !errors.Is(err, ErrClass)
}

// Unreachable is the error of a call that was not made because nothing listens at
// address. Its code is that of a failed connection.
func Unreachable(address string) error {
	return status.Errorf(codes.Unavailable, "nothing answers at %s", address)
}

// Failure is a failed call as shown in events. It deliberately does not unwrap to the
// gRPC status: the provisioner library would delay every InvalidArgument by five
// minutes instead of the configured backoff.
type Failure struct {
	message     string
	nothingMade bool
}

// NewFailure describes an error of a driver's method. redact is applied to the
// driver's message.
func NewFailure(method, driver string, err error, redact func(string) string) *Failure {
	answer := status.Convert(err)
	message := fmt.Sprintf("%s of CSI driver %s: %s: %s",
		method, driver, answer.Code(), redact(answer.Message()))
	if hint := hintFor(answer.Code()); hint != "" {
		message = truncate(message, maxMessageBytes-len(hint)-len("; ")) + "; " + hint
	}
	return &Failure{message: truncate(message, maxMessageBytes), nothingMade: nothingMade(answer.Code())}
}

// NothingMade reports whether a failed CreateVolume proves that the volume does not
// exist. It is for the request of an earlier process; CreateState is less strict.
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
	// Events must be valid UTF-8.
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut--
	}
	return text[:cut] + ellipsis
}
