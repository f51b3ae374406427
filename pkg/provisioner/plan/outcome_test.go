package plan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func TestCreateState(t *testing.T) {
	background := map[codes.Code]bool{
		codes.Canceled:         true,
		codes.DeadlineExceeded: true,
		codes.Unavailable:      true,
		codes.Aborted:          true,
	}
	// All codes, so that none is decided by accident.
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		want := controller.ProvisioningFinished
		if background[code] {
			want = controller.ProvisioningInBackground
		}
		if got := CreateState(status.Error(code, "x")); got != want {
			t.Errorf("CreateState(%s) = %s, want %s", code, got, want)
		}
		if got := CreateState(fmt.Errorf("call: %w", status.Error(code, "x"))); got != want {
			t.Errorf("CreateState(wrapped %s) = %s, want %s", code, got, want)
		}
	}
	for _, err := range []error{errors.New("broken pipe"), context.DeadlineExceeded} {
		if got := CreateState(err); got != controller.ProvisioningInBackground {
			t.Errorf("CreateState(%v) = %s, want %s", err, got, controller.ProvisioningInBackground)
		}
	}
}

func TestWorthWaiting(t *testing.T) {
	tests := map[error]bool{
		Unreachable("unix:///x"):                       true,
		status.Error(codes.FailedPrecondition, "x"):    true,
		status.Error(codes.Internal, "x"):              true,
		status.Error(codes.Unimplemented, "x"):         false,
		errors.New("driver name is empty"):             false,
		fmt.Errorf("a: %w", Unreachable("unix:///x")):  true,
		fmt.Errorf("no: %w", errors.New("controller")): false,
	}
	for err, want := range tests {
		if got := WorthWaiting(err); got != want {
			t.Errorf("WorthWaiting(%v) = %t", err, got)
		}
	}
}

func TestFailure(t *testing.T) {
	redact := strings.NewReplacer("hunter2", "***").Replace
	failure := NewFailure("CreateVolume", "nfs.example", status.Error(codes.InvalidArgument, "no server, password hunter2"), redact)
	const want = "CreateVolume of CSI driver nfs.example: InvalidArgument: no server, password ***; check the StorageClass parameters"
	if failure.Error() != want {
		t.Errorf("got  %s\nwant %s", failure, want)
	}
	// The library would put such an error on its fixed five-minute list.
	if code := status.Code(failure); code != codes.Unknown {
		t.Errorf("the failure still carries code %s", code)
	}
}

func TestNothingMade(t *testing.T) {
	nothing := map[codes.Code]bool{
		codes.InvalidArgument: true,
		codes.NotFound:        true,
		codes.AlreadyExists:   true,
		codes.OutOfRange:      true,
		codes.Unimplemented:   true,
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		failure := NewFailure("CreateVolume", "d", status.Error(code, "x"), func(s string) string { return s })
		if got := failure.NothingMade(); got != nothing[code] {
			t.Errorf("%s: nothing was made: %t, want %t", code, got, nothing[code])
		}
	}
}

func TestFailureIsBounded(t *testing.T) {
	long := strings.Repeat("ä", maxMessageBytes)
	for _, code := range []codes.Code{codes.Internal, codes.Unavailable} {
		message := NewFailure("CreateVolume", "d", status.Error(code, long), func(s string) string { return s }).Error()
		if len(message) > maxMessageBytes || !utf8.ValidString(message) {
			t.Errorf("%s: %d bytes, valid UTF-8 %t", code, len(message), utf8.ValidString(message))
		}
		if !strings.HasSuffix(message, hintFor(code)) {
			t.Errorf("%s: the hint was cut off: %s", code, message[len(message)-80:])
		}
	}
}
