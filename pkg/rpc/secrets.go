package rpc

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

const (
	stripped = "***stripped***" // as protosanitizer has it
	// minSecret is the length below which a text is a word or a number that is in
	// many a message and gives nothing away.
	minSecret = 4
)

// stripErrors takes the request's secrets out of what a call fails with. An error
// quotes what it is about, mount options among it, and goes into the log and into
// events that more people may read than the secret.
func stripErrors(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	secrets := secretsOf(req)
	if err == nil || len(secrets) == 0 {
		return resp, err
	}
	s := status.Convert(err)
	if clean := strip(s.Message(), secrets); clean != s.Message() {
		return resp, status.Error(s.Code(), clean)
	}
	return resp, err
}

func secretsOf(req any) map[string]string {
	if carrier, ok := req.(interface{ GetSecrets() map[string]string }); ok {
		return carrier.GetSecrets()
	}
	return nil
}

// strip replaces every secret in a text, and every part of one that is a list.
func strip(text string, secrets map[string]string) string {
	for _, secret := range secrets {
		for _, part := range append([]string{secret}, strings.FieldsFunc(secret, listSeparator)...) {
			if part = strings.TrimSpace(part); len(part) >= minSecret {
				text = strings.ReplaceAll(text, part, stripped)
			}
		}
	}
	return text
}

func listSeparator(r rune) bool { return r == ',' || r == '\n' }
