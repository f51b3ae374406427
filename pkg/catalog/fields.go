package catalog

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

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
