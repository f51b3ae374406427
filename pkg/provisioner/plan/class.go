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
	template, found := c.template(purpose)
	if !found {
		return SecretRef{}, nil
	}
	return template.resolve(subject)
}

// NamedBy says which parameters name the secret for one purpose.
func (c Class) NamedBy(purpose Purpose) string {
	template, _ := c.template(purpose)
	return fmt.Sprintf("StorageClass parameters %s and %s", template.nameKey, template.namespaceKey)
}

func (c Class) template(purpose Purpose) (template secretTemplate, found bool) {
	for _, candidate := range []Purpose{purpose, defaultSecret} {
		if template, found = c.secrets[candidate]; found {
			return template, true
		}
	}
	return secretTemplate{}, false
}

func secretTemplates(parameters map[string]string) (map[Purpose]secretTemplate, error) {
	templates := map[Purpose]secretTemplate{}
	for _, purpose := range secretPairs() {
		template, found, err := pairTemplate(parameters, purpose.nameKey(), purpose.namespaceKey())
		if err != nil {
			return nil, err
		}
		if name, namespace, deprecated := purpose.deprecatedKeys(); deprecated {
			old, oldFound, err := pairTemplate(parameters, name, namespace)
			switch {
			case err != nil:
				return nil, err
			case found && oldFound:
				return nil, fmt.Errorf("%w: parameters %s and %s name the same secret; keep %s", ErrClass, template.nameKey, name, template.nameKey)
			case oldFound:
				template, found = old, true
			}
		}
		if found {
			templates[purpose] = template
		}
	}
	return templates, nil
}

func pairTemplate(parameters map[string]string, nameKey, namespaceKey string) (template secretTemplate, found bool, err error) {
	name, hasName := parameters[nameKey]
	namespace, hasNamespace := parameters[namespaceKey]
	if !hasName && !hasNamespace {
		return secretTemplate{}, false, nil
	}
	if name == "" || namespace == "" {
		return secretTemplate{}, false, fmt.Errorf("%w: parameters %s and %s must be given together, neither empty", ErrClass, nameKey, namespaceKey)
	}
	return secretTemplate{nameKey: nameKey, namespaceKey: namespaceKey, name: name, namespace: namespace}, true, nil
}

func knownKeys() []string {
	keys := []string{fsTypeKey, expandKey}
	for _, purpose := range secretPairs() {
		keys = append(keys, purpose.nameKey(), purpose.namespaceKey())
	}
	return keys
}
