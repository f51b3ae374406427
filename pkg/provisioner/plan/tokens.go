package plan

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

var errUnknownToken = errors.New("unknown token")

// tokenStart begins a token that is expanded.
const tokenStart = "${"

// Subject has the values of tokens.
type Subject struct {
	PVName         string
	ClaimNamespace string
	ClaimName      string
	// Annotations and Labels are the claim's.
	Annotations map[string]string
	Labels      map[string]string
}

// ClaimSubject is the Subject of a claim and its volume.
func ClaimSubject(claim *corev1.PersistentVolumeClaim, pvName string) Subject {
	return Subject{
		PVName:         pvName,
		ClaimNamespace: claim.Namespace,
		ClaimName:      claim.Name,
		Annotations:    claim.Annotations,
		Labels:         claim.Labels,
	}
}

// expanded are the driver's parameters, with tokens replaced if the class says so. The
// driver decides whether the result is valid, as a path for example.
func (c Class) expanded(subject Subject) (map[string]string, error) {
	parameters := make(map[string]string, len(c.Parameters))
	for key, value := range c.Parameters {
		if c.expand {
			text, err := expand(value, subject.parameterToken)
			if err != nil {
				return nil, fmt.Errorf("%w: parameter %s %q: %w", ErrClass, key, value, err)
			}
			value = text
		}
		parameters[key] = value
	}
	return parameters, nil
}

// Common are the driver's parameters that are the same for every claim: with tokens
// expanded, those without tokens.
func (c Class) Common() map[string]string {
	parameters := make(map[string]string, len(c.Parameters))
	for key, value := range c.Parameters {
		if !c.expand || !strings.Contains(value, tokenStart) {
			parameters[key] = value
		}
	}
	return parameters
}

// parameterToken restricts the author of a claim to one plain word in the class's
// value: no path separators or parents, and no tokens of the driver's own templates.
func (s Subject) parameterToken(token string) (string, error) {
	value, err := s.parameterValue(token)
	switch {
	case err != nil:
		return "", err
	case value == "":
		return "", fmt.Errorf("${%s} is empty", token)
	case value == "." || value == ".." || strings.ContainsAny(value, "/\\$"):
		return "", fmt.Errorf("${%s} is %q, which must have no slash, backslash or $ and must not lead upwards", token, value)
	}
	return value, nil
}

func (s Subject) parameterValue(token string) (string, error) {
	if key, ok := mapKey(token, "pvc.labels"); ok {
		return lookUp(s.Labels, "label", key)
	}
	value, err := s.nameToken(token)
	if errors.Is(err, errUnknownToken) {
		return "", fmt.Errorf("%w ${%s}, must be one of ${pv.name}, ${pvc.namespace}, ${pvc.name}, ${pvc.labels['KEY']} and ${pvc.annotations['KEY']}",
			errUnknownToken, token)
	}
	return value, err
}

// mapKey is KEY of a token like pvc.labels['KEY'].
func mapKey(token, of string) (string, bool) {
	quoted, ok := strings.CutPrefix(token, of+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(quoted, "']")
}

func lookUp(values map[string]string, what, key string) (string, error) {
	value, found := values[key]
	if !found {
		return "", fmt.Errorf("the claim has no %s %q", what, key)
	}
	return value, nil
}

// expand replaces every ${token}. Replacements are not expanded.
func expand(template string, value func(token string) (string, error)) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(template, tokenStart)
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		token, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", fmt.Errorf("${%s is not closed", rest)
		}
		text, err := value(token)
		if err != nil {
			return "", err
		}
		out.WriteString(text)
		template = after
	}
}
