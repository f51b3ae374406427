package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	// reservedPrefix marks parameters of the provisioner, which the driver does not get.
	reservedPrefix = "csi.storage.k8s.io/"

	fsTypeKey = reservedPrefix + "fstype"
	// deprecatedFSTypeKey, matched case-insensitively, is also passed to the driver:
	// some read it themselves.
	deprecatedFSTypeKey = "fstype"

	// expandKey with the value "true" expands tokens in the other parameters.
	expandKey = reservedPrefix + "expand-parameters"
)

// Class is the parsed parameters of a StorageClass.
type Class struct {
	// Parameters are the driver's.
	Parameters map[string]string
	// FSType is empty when the class names none.
	FSType string

	expand  bool
	secrets map[Purpose]secretTemplate
}

// ParseClass separates the provisioner's parameters from the driver's. An unknown
// reserved parameter is an error: ignoring it would provision something other than
// what was requested.
func ParseClass(parameters map[string]string) (Class, error) {
	secrets, err := secretTemplates(parameters)
	if err != nil {
		return Class{}, err
	}
	class := Class{Parameters: map[string]string{}, secrets: secrets}
	known := knownKeys()
	var fsTypeFrom []string
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		value := parameters[key]
		reserved := strings.HasPrefix(key, reservedPrefix)
		if reserved && !slices.Contains(known, key) {
			return Class{}, fmt.Errorf("%w: unknown parameter %q, known with prefix %s are %s",
				ErrClass, key, reservedPrefix, strings.Join(known, ", "))
		}
		if key == expandKey {
			if class.expand, err = strconv.ParseBool(value); err != nil {
				return Class{}, fmt.Errorf("%w: parameter %s is %q, must be true or false", ErrClass, key, value)
			}
		}
		if key == fsTypeKey || strings.EqualFold(key, deprecatedFSTypeKey) {
			fsTypeFrom = append(fsTypeFrom, key)
			class.FSType = value
		}
		if !reserved {
			class.Parameters[key] = value
		}
	}
	if len(fsTypeFrom) > 1 {
		return Class{}, fmt.Errorf("%w: parameters %s all set the file system type; keep %s",
			ErrClass, strings.Join(fsTypeFrom, ", "), fsTypeKey)
	}
	return class, nil
}

// Secret resolves the reference for one purpose, zero if the class has none.
func (c Class) Secret(purpose Purpose, subject Subject) (SecretRef, error) {
	pair, found := c.pair(purpose)
	if !found {
		return SecretRef{}, nil
	}
	return c.secrets[pair].resolve(pair, subject)
}

// NamedBy says which parameters name the secret for one purpose.
func (c Class) NamedBy(purpose Purpose) string {
	pair, _ := c.pair(purpose)
	return fmt.Sprintf("StorageClass parameters %s and %s", pair.nameKey(), pair.namespaceKey())
}

func (c Class) pair(purpose Purpose) (pair Purpose, found bool) {
	for _, candidate := range []Purpose{purpose, defaultSecret} {
		if _, ok := c.secrets[candidate]; ok {
			return candidate, true
		}
	}
	return purpose, false
}

func secretTemplates(parameters map[string]string) (map[Purpose]secretTemplate, error) {
	templates := map[Purpose]secretTemplate{}
	for _, purpose := range secretPairs() {
		name, hasName := parameters[purpose.nameKey()]
		namespace, hasNamespace := parameters[purpose.namespaceKey()]
		if !hasName && !hasNamespace {
			continue
		}
		if name == "" || namespace == "" {
			return nil, fmt.Errorf("%w: parameters %s and %s must be given together, neither empty",
				ErrClass, purpose.nameKey(), purpose.namespaceKey())
		}
		templates[purpose] = secretTemplate{name: name, namespace: namespace}
	}
	return templates, nil
}

func knownKeys() []string {
	keys := []string{fsTypeKey, expandKey}
	for _, purpose := range secretPairs() {
		keys = append(keys, purpose.nameKey(), purpose.namespaceKey())
	}
	return keys
}
