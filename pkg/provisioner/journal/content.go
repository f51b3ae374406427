package journal

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Keys of a ConfigMap. Entries are similar, and compressed together take a tenth of the
// space. The elements of their lists change seldom, and are not compressed with each write.
const (
	entriesKey  = "volumes.json.gz"
	elementsKey = "topologies.json.gz"
)

// stored is an entry in a ConfigMap.
type stored struct {
	// Lists refer to the elements.
	Lists map[string]string `json:"lists,omitempty"`
	Data  json.RawMessage   `json:"data"`
}

// packer compresses. Its writer is reused, since it needs more memory than its input.
type packer struct{ zip *gzip.Writer }

func newPacker() (packer, error) {
	zip, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return packer{zip}, err
}

// pack must not be called concurrently.
func (p packer) pack(write func(io.Writer) error) ([]byte, error) {
	var out bytes.Buffer
	p.zip.Reset(&out)
	if err := write(p.zip); err != nil {
		return nil, err
	}
	if err := p.zip.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// entries writes one entry a line.
func (p packer) entries(entries map[string]stored) ([]byte, error) {
	return p.pack(func(w io.Writer) error {
		separator := "{\n"
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			name, err := json.Marshal(key)
			if err != nil {
				return err
			}
			entry, err := json.Marshal(entries[key])
			if err != nil {
				return fmt.Errorf("entry %s: %w", key, err)
			}
			if _, err := fmt.Fprintf(w, "%s%s: %s", separator, name, entry); err != nil {
				return err
			}
			separator = ",\n"
		}
		if len(entries) == 0 {
			separator = "{"
		} else {
			separator = "\n"
		}
		_, err := io.WriteString(w, separator+"}\n")
		return err
	})
}

// elements writes one element a line.
func (p packer) elements(elements []string) ([]byte, error) {
	return p.pack(func(w io.Writer) error {
		separator := "[\n"
		for _, element := range elements {
			if _, err := io.WriteString(w, separator+element); err != nil {
				return err
			}
			separator = ",\n"
		}
		_, err := io.WriteString(w, "\n]\n")
		return err
	})
}

// unpack reads what packer has written, nothing from no data.
func unpack(data []byte, to any) error {
	if len(data) == 0 {
		return nil
	}
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return json.NewDecoder(zip).Decode(to)
}

// decode returns the entries of a ConfigMap.
func decode(data map[string][]byte) (map[string]Entry, error) {
	var found map[string]stored
	if err := unpack(data[entriesKey], &found); err != nil {
		return nil, fmt.Errorf("%s: %w", entriesKey, err)
	}
	var raw []json.RawMessage
	if err := unpack(data[elementsKey], &raw); err != nil {
		return nil, fmt.Errorf("%s: %w", elementsKey, err)
	}
	elements := make([]string, len(raw))
	for i := range raw {
		elements[i] = string(raw[i])
	}
	entries := make(map[string]Entry, len(found))
	for key, from := range found {
		entry, err := restore(elements, from)
		if err != nil {
			return nil, fmt.Errorf("entry %s: %w", key, err)
		}
		entries[key] = entry
	}
	return entries, nil
}

func restore(elements []string, from stored) (Entry, error) {
	entry := Entry{Data: from.Data}
	for name, numbers := range from.Lists {
		list, err := resolve(elements, numbers)
		if err != nil {
			return Entry{}, fmt.Errorf("list %s: %w", name, err)
		}
		if entry.Lists == nil {
			entry.Lists = map[string][]string{}
		}
		entry.Lists[name] = list
	}
	return entry, nil
}
