package catalog

import (
	"errors"
	"path"
)

// A note is a copy of a record under another key, which is only looked up by that key.

// setNote writes a note, and replaces an earlier one.
func (c *Catalog) setNote(at string, r Record) error {
	return c.putNote(at, r, func(temp string) error {
		if err := c.meta.Rename(temp, at); err != nil {
			return errors.Join(err, c.meta.Remove(temp))
		}
		return nil
	})
}

// putNote writes a note to a temporary file, which put moves or links to its path. The
// parent directory exists then.
func (c *Catalog) putNote(at string, r Record, put func(temp string) error) error {
	b, err := encode(r)
	if err != nil {
		return err
	}
	temp, err := c.writeTemp(b)
	if err != nil {
		return err
	}
	if err := c.meta.MkdirAll(path.Dir(at), dirMode); err != nil {
		return errors.Join(err, c.meta.Remove(temp))
	}
	return put(temp)
}

// readNote reads a note; fs.ErrNotExist if there is none.
func (c *Catalog) readNote(in, name string) (Record, error) {
	b, err := c.readBytes(in, name)
	if err != nil {
		return Record{}, err
	}
	return decode(b)
}
