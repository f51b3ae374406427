package volume

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

func checkKnown(values map[string]string, known []string, what string) error {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, key) }) {
			return fmt.Errorf("%w: unknown %s %q, must be one of %s", ErrInvalid, what, key, strings.Join(known, ", "))
		}
	}
	return nil
}

func parseSubDir(values map[string]string) (string, error) {
	subDir, pattern := values[strings.ToLower(KeySubDir)], values[strings.ToLower(KeyPathPattern)]
	if subDir != "" && pattern != "" {
		return "", fmt.Errorf("%w: %s and %s are the same, give one", ErrInvalid, KeySubDir, KeyPathPattern)
	}
	template := subDir + pattern
	if template != "" && strings.Trim(template, "/") == "" {
		return "", fmt.Errorf("%w: %s %q would be the export itself", ErrInvalid, KeySubDir, template)
	}
	return template, nil
}

// parsePolicy reads onDelete or, if that is not given, archiveOnDelete.
func parsePolicy(values map[string]string) (OnDelete, error) {
	policy, err := ParseOnDelete(values[strings.ToLower(KeyOnDelete)])
	archive, given := values[strings.ToLower(KeyArchiveOnDelete)]
	if err != nil || !given {
		return policy, err
	}
	yes, err := parseBool(KeyArchiveOnDelete, archive)
	switch {
	case err != nil:
		return "", err
	case policy != "":
		return policy, nil
	case yes:
		return OnDeleteArchive, nil
	}
	return OnDeleteDelete, nil
}

// parseOwnership reads the mode and the owner of the directory.
func (p *Params) parseOwnership(values map[string]string) error {
	permissions, err := ParseMode(values[strings.ToLower(KeyMountPermissions)])
	if err != nil {
		return fmt.Errorf("%s: %w", KeyMountPermissions, err)
	}
	if p.Mode, err = ParseMode(values[KeyMode]); err != nil {
		return fmt.Errorf("%s: %w", KeyMode, err)
	}
	if p.Mode != 0 && permissions != 0 && p.Mode != permissions {
		return fmt.Errorf("%w: %s %s and %s %s contradict each other", ErrInvalid, KeyMode, p.Mode, KeyMountPermissions, permissions)
	}
	p.Mode |= permissions
	for key, id := range map[string]**uint32{KeyUID: &p.UID, KeyGID: &p.GID} {
		if values[key] == "" {
			continue
		}
		if *id, err = ParseUserID(values[key]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// Shape is the part of the parameters by which two requests for one name are the same
// request. It has the template of the class, not its expansion.
func (p Params) Shape() map[string]string {
	shape := map[string]string{KeyServer: p.Export.Server, KeyShare: p.Export.Share}
	add := func(key, value string) {
		if value != "" {
			shape[key] = value
		}
	}
	add(KeySubDir, p.SubDir)
	add(KeyOnDelete, string(p.OnDelete))
	if p.Shared {
		add(KeyShared, "true")
	}
	if p.Mode != 0 {
		add(KeyMode, p.Mode.String())
	}
	for key, id := range map[string]*uint32{KeyUID: p.UID, KeyGID: p.GID} {
		if id != nil {
			add(key, strconv.FormatUint(uint64(*id), 10))
		}
	}
	return shape
}

// Mutable are the parameters that a VolumeAttributesClass may change during the life of
// a volume. Empty ones stay unchanged.
type Mutable struct {
	OnDelete OnDelete
	Mode     Mode
}

// ParseMutable reads mutable parameters.
func ParseMutable(in map[string]string) (Mutable, error) {
	values, err := foldKeys(in)
	if err != nil {
		return Mutable{}, err
	}
	if err := checkKnown(values, []string{KeyOnDelete, KeyMountPermissions}, "mutable parameter"); err != nil {
		return Mutable{}, err
	}
	var m Mutable
	if m.OnDelete, err = ParseOnDelete(values[strings.ToLower(KeyOnDelete)]); err != nil {
		return Mutable{}, err
	}
	if m.Mode, err = ParseMode(values[strings.ToLower(KeyMountPermissions)]); err != nil {
		return Mutable{}, fmt.Errorf("%s: %w", KeyMountPermissions, err)
	}
	return m, nil
}
