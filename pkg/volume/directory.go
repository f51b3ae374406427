package volume

import (
	"fmt"
	"strconv"
	"strings"
)

// reuseClaim is the one value of KeyReuse.
const reuseClaim = "claim"

// parseDirectory reads which directories the volumes of a class may get.
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
		return fmt.Errorf("%w: %s: %s needs a %s by the names of the claim, as ${pvc.metadata.namespace}/${pvc.metadata.name}; "+
			"by that of the volume a claim that is made again has another directory", ErrInvalid, KeyReuse, text, KeySubDir)
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
		return fmt.Errorf("%w: %s: %q needs a %s that several claims have in common, as data or ${pvc.metadata.namespace}/data",
			ErrInvalid, KeyShared, text, KeySubDir)
	case p.Reuse:
		return fmt.Errorf("%w: %s: %q and %s: %s contradict each other: a shared directory is no claim's", ErrInvalid, KeyShared, text, KeyReuse, reuseClaim)
	case p.OnDelete != "" && p.OnDelete != OnDeleteRetain:
		return fmt.Errorf("%w: %s: %q and %s: %s contradict each other: a shared directory is never deleted; leave %s out",
			ErrInvalid, KeyShared, text, KeyOnDelete, p.OnDelete, KeyOnDelete)
	}
	return nil
}

// namesVolume tells whether each volume of the class has another directory.
func (p *Params) namesVolume() bool { return strings.Contains(p.SubDir, "${pv.") }

func parseBool(key, text string) (bool, error) {
	yes, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%w: %s %q is neither true nor false", ErrInvalid, key, text)
	}
	return yes, nil
}
