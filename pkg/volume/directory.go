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
	return p.parseReuse(values[KeyReuse])
}

func (p *Params) parseReuse(text string) error {
	switch {
	case text == "":
		return nil
	case text != reuseClaim:
		return fmt.Errorf("%w: %s %q, known is %s", ErrInvalid, KeyReuse, text, reuseClaim)
	case p.SubDir == "" || strings.Contains(p.SubDir, "${pv."):
		return fmt.Errorf("%w: %s: %s needs a %s by the names of the claim, as ${pvc.metadata.namespace}/${pvc.metadata.name}; "+
			"by that of the volume a claim that is made again has another directory", ErrInvalid, KeyReuse, text, KeySubDir)
	}
	p.Reuse = true
	return nil
}

func parseBool(key, text string) (bool, error) {
	yes, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%w: %s %q is neither true nor false", ErrInvalid, key, text)
	}
	return yes, nil
}
