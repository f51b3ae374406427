package volume

import (
	"fmt"
	"strconv"
	"strings"
)

// reuseClaim is the one value of KeyReuse.
const reuseClaim = "claim"

// parseDirectory reads which directories the volumes of a class may use.
func (p *Params) parseDirectory(values map[string]string) error {
	if text := values[KeyAdopt]; text != "" {
		adopt, err := parseBool(KeyAdopt, text)
		if err != nil {
			return err
		}
		p.NoAdopt = !adopt
	}
	if err := p.parseReuse(values[KeyReuse]); err != nil {
		return err
	}
	return p.parseShared(values[KeyShared])
}

func (p *Params) parseReuse(text string) error {
	switch {
	case text == "":
		return nil
	case text != reuseClaim:
		return fmt.Errorf("%w: %s %q, known is %s", ErrInvalid, KeyReuse, text, reuseClaim)
	case p.SubDir == "" || p.namesVolume():
		return fmt.Errorf("%w: %s: %s needs a %s with the names of the claim, such as ${pvc.metadata.namespace}/${pvc.metadata.name}; "+
			"with the name of the volume, a recreated claim gets another directory", ErrInvalid, KeyReuse, text, KeySubDir)
	}
	p.Reuse = true
	return nil
}

func (p *Params) parseShared(text string) (err error) {
	if text == "" {
		return nil
	}
	if p.Shared, err = parseBool(KeyShared, text); err != nil || !p.Shared {
		return err
	}
	switch {
	case p.SubDir == "" || p.namesVolume():
		return fmt.Errorf("%w: %s: %q needs a %s that several claims have in common, such as data or ${pvc.metadata.namespace}/data",
			ErrInvalid, KeyShared, text, KeySubDir)
	case p.Reuse:
		return fmt.Errorf("%w: %s: %q and %s: %s contradict each other: a shared directory belongs to no claim", ErrInvalid, KeyShared, text, KeyReuse, reuseClaim)
	case p.OnDelete != "" && p.OnDelete != OnDeleteRetain:
		return fmt.Errorf("%w: %s: %q and %s: %s contradict each other: a shared directory is never deleted; leave %s out",
			ErrInvalid, KeyShared, text, KeyOnDelete, p.OnDelete, KeyOnDelete)
	}
	return nil
}

// namesVolume tells whether each volume of the class has a directory of its own.
func (p *Params) namesVolume() bool { return strings.Contains(p.SubDir, "${pv.") }

func parseBool(key, text string) (bool, error) {
	yes, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%w: %s %q is neither true nor false", ErrInvalid, key, text)
	}
	return yes, nil
}
