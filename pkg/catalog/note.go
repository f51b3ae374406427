package catalog

import (
	"errors"
	"path"
)

// A note is a copy of a record that can be found by another name, at a place that is
// only looked at by it.

// setNote puts a note in its place, whatever was there before.
func (c *Catalog) setNote(at string, r Record) error {
	return c.putNote(at, r, func(temp string) error {
		if err := c.meta.Rename(temp, at); err != nil {
			return errors.Join(err, c.meta.Remove(temp))
		}
		return nil
	})
}

// putNote writes a note that put brings to its place, whose directory is there then.
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
