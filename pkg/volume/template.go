package volume

import (
	"fmt"
	"strings"
)

// templateKeys maps the tokens of a subDir, with those of both predecessors, to
// metadata.
func templateKeys() map[string]string {
	return map[string]string{
		"pvc.metadata.name":      KeyPVCName,
		"pvc.metadata.namespace": KeyPVCNamespace,
		"pv.metadata.name":       KeyPVName,
		".PVC.name":              KeyPVCName,
		".PVC.namespace":         KeyPVCNamespace,
	}
}

const knownTokens = "${pvc.metadata.name}, ${pvc.metadata.namespace}, ${pv.metadata.name}, ${.PVC.name}, ${.PVC.namespace}"

// ExpandSubDir expands the subDir of a class to the directory of a volume. A value is
// part of one path component: only the class itself can add a slash. A token without
// a value is an error, since an empty string could turn the directory into its parent.
func ExpandSubDir(template string, metadata map[string]string) (string, error) {
	var out strings.Builder
	rest := strings.Trim(template, "/")
	for {
		text, after, found := strings.Cut(rest, "${")
		out.WriteString(text)
		if !found {
			break
		}
		token, tail, closed := strings.Cut(after, "}")
		if !closed {
			return "", fmt.Errorf("%w: subDir %q: ${ without }", ErrInvalid, template)
		}
		value, err := tokenValue(token, metadata)
		if err != nil {
			return "", fmt.Errorf("subDir %q: %w", template, err)
		}
		out.WriteString(value)
		rest = tail
	}
	subDir := out.String()
	if err := CheckSubDir(subDir); err != nil {
		return "", fmt.Errorf("subDir %q: %w", template, err)
	}
	return subDir, nil
}

// fillIn expands a subDir as csi-driver-nfs does at each publish: tokens with a value in
// the attributes are replaced. Any other is literal text, since a directory may have
// that name.
func fillIn(subDir string, attributes map[string]string) (string, error) {
	var pairs []string
	for token, key := range templateKeys() {
		text, value := "${"+token+"}", attributes[key]
		if value == "" || !strings.Contains(subDir, text) {
			continue
		}
		if err := CheckComponent(value); err != nil {
			return "", fmt.Errorf("value of %s: %w", text, err)
		}
		pairs = append(pairs, text, value)
	}
	return strings.NewReplacer(pairs...).Replace(subDir), nil // once: values have no tokens
}

func tokenValue(token string, metadata map[string]string) (string, error) {
	if strings.HasPrefix(token, ".PVC.labels.") || strings.HasPrefix(token, ".PVC.annotations.") {
		return "", fmt.Errorf("%w: ${%s}: a CSI driver does not get labels and annotations of claims; "+
			"write the value into the class, or use one of %s", ErrInvalid, token, knownTokens)
	}
	key, known := templateKeys()[token]
	if !known {
		return "", fmt.Errorf("%w: unknown ${%s}, must be one of %s", ErrInvalid, token, knownTokens)
	}
	value := metadata[key]
	if value == "" {
		return "", fmt.Errorf("%w: ${%s} has no value; run csi-provisioner with --extra-create-metadata", ErrInvalid, token)
	}
	if err := CheckComponent(value); err != nil {
		return "", fmt.Errorf("value of ${%s}: %w", token, err)
	}
	return value, nil
}
