package plan

import "strings"

// Redactor strips the values of secrets from a text. Drivers should not put them
// into their messages, but messages go into events that every reader of a namespace
// sees.
func Redactor(secrets map[string]string) func(string) string {
	// Shorter values are words like "a" or "hard": replacing them protects nothing
	// and makes the message unreadable.
	const minLength = 6
	var pairs []string
	for _, value := range secrets {
		if len(value) >= minLength {
			pairs = append(pairs, value, "***stripped***")
		}
	}
	return strings.NewReplacer(pairs...).Replace
}
