package rpc

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

const (
	stripped = "***stripped***" // as in protosanitizer
	// minSecret is the length below which a value is too common to be a secret.
	minSecret = 4
)

// stripErrors removes the request's secrets from the error of a call. Errors quote mount
// options, among others, and appear in logs and events, which more people may read than
// the secret.
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

// strip replaces every secret in a text, and every element of one that is a list.
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
