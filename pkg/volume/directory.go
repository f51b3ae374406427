package volume

import (
	"fmt"
	"strconv"
)

// parseDirectory reads which directories the volumes of a class may get.
func (p *Params) parseDirectory(values map[string]string) error {
	if values[KeyAdopt] == "" {
		return nil
	}
	adopt, err := parseBool(KeyAdopt, values[KeyAdopt])
	p.NoAdopt = !adopt
	return err
}

func parseBool(key, text string) (bool, error) {
	yes, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%w: %s %q is neither true nor false", ErrInvalid, key, text)
	}
	return yes, nil
}
