package catalog

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// recordVersion is written into every record. docs/format.md says when it is raised
// and how a record with a higher version is treated.
const recordVersion = 1

// BrokenError says that what was found instead of a record is not one, or not one that
// this driver understands.
type BrokenError struct {
	Reason string
	Err    error // volume.ErrNewerRecord, or nil
}

func (e *BrokenError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%v: %s", e.Err, e.Reason)
	}
	return e.Reason
}

func (e *BrokenError) Unwrap() error { return e.Err }

func encode(r Record) ([]byte, error) {
	r.Version = recordVersion
	return marshal(r)
}

// marshal encodes a record of any kind.
func marshal(record any) ([]byte, error) {
	b, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

func decode(b []byte) (Record, error) {
	var r Record
	if err := unmarshal(b, &r); err != nil {
		return Record{}, err
	}
	if r.Name == "" || r.SubDir == "" {
		return Record{}, &BrokenError{Reason: "record without a name or a directory"}
	}
	if _, err := volume.ParseOnDelete(string(r.OnDelete)); err != nil {
		return Record{}, &BrokenError{Reason: err.Error()} // or the directory would be deleted
	}
	return r, nil
}

// unmarshal decodes a record of any kind.
func unmarshal(b []byte, record any) error {
	var format struct{ Version int }
	if err := json.Unmarshal(b, &format); err != nil {
		return &BrokenError{Reason: fmt.Sprintf("not a record: %v", err)}
	}
	if format.Version > recordVersion {
		return &BrokenError{fmt.Sprintf("it has version %d, this driver knows up to %d", format.Version, recordVersion), volume.ErrNewerRecord}
	}
	if format.Version < 1 {
		return &BrokenError{Reason: fmt.Sprintf("record version %d, the first is 1", format.Version)}
	}
	if err := json.Unmarshal(b, record); err != nil {
		return &BrokenError{Reason: fmt.Sprintf("not a record: %v", err)}
	}
	return nil
}

// decodeOf is decode that checks which directory the record is of.
func decodeOf(b []byte, subDir string) (Record, error) {
	r, err := decode(b)
	if err == nil && r.SubDir != subDir {
		err = &BrokenError{Reason: fmt.Sprintf("it is the record of %q", r.SubDir)}
	}
	return r, err
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Record) UnmarshalJSON(b []byte) (err error) {
	type plain Record
	r.unknown, err = unmarshalFields(b, (*plain)(r))
	return err
}

// MarshalJSON implements json.Marshaler.
func (r Record) MarshalJSON() ([]byte, error) {
	type plain Record
	return marshalFields(plain(r), r.unknown)
}

// unknown are the fields of a JSON object that a later version of the driver wrote.
// They are kept when the object is rewritten.
type unknown map[string]json.RawMessage

// unmarshalFields reads a JSON object into the struct that known points to and
// returns the fields that the struct does not have.
func unmarshalFields(b []byte, known any) (unknown, error) {
	if err := json.Unmarshal(b, known); err != nil {
		return nil, err
	}
	var rest unknown
	if err := json.Unmarshal(b, &rest); err != nil {
		return nil, err
	}
	names := fieldNames(reflect.TypeOf(known).Elem())
	maps.DeleteFunc(rest, func(field string, _ json.RawMessage) bool {
		// json.Unmarshal ignores case as well.
		return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, field) })
	})
	if len(rest) == 0 {
		return nil, nil
	}
	return rest, nil
}

// marshalFields writes a struct and, after its own fields, the unknown ones.
func marshalFields(known any, rest unknown) ([]byte, error) {
	object, err := json.Marshal(known)
	if err != nil || len(rest) == 0 {
		return object, err
	}
	tail, err := json.Marshal(rest)
	return slices.Concat(object[:len(object)-1], []byte(","), tail[1:]), err
}

// fieldNames returns the JSON names of a struct's fields.
func fieldNames(of reflect.Type) []string {
	var names []string
	for field := range of.Fields() {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}
