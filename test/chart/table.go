package chart

import (
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mark starts the comment of a value in values.yaml.
const mark = "# -- "

// A Value is one row of the table of values.
type Value struct {
	Path, Default, Meaning string
}

// Documented lists the values in the text of values.yaml, in its order. Every value needs a
// comment that starts with "# -- ", of its own or of a map that it is in.
func Documented(text []byte) ([]Value, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if len(document.Content) != 1 {
		return nil, fmt.Errorf("%d documents, want 1", len(document.Content))
	}
	return documentedBelow("", document.Content[0])
}

func documentedBelow(prefix string, node *yaml.Node) ([]Value, error) {
	var values []Value
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		path := prefix + key.Value
		if meaning, ok := comment(key.HeadComment); ok {
			row, err := newValue(path, meaning, value)
			if err != nil {
				return nil, err
			}
			values = append(values, row)
			continue
		}
		if value.Kind != yaml.MappingNode || len(value.Content) == 0 {
			return nil, fmt.Errorf("values.yaml:%d: %s has no comment that starts with %q", key.Line, path, mark)
		}
		below, err := documentedBelow(path+".", value)
		if err != nil {
			return nil, err
		}
		values = append(values, below...)
	}
	return values, nil
}

func newValue(path, meaning string, node *yaml.Node) (Value, error) {
	var decoded any
	if err := node.Decode(&decoded); err != nil {
		return Value{}, fmt.Errorf("%s: %w", path, err)
	}
	text, err := json.Marshal(decoded)
	if err != nil {
		return Value{}, fmt.Errorf("%s: %w", path, err)
	}
	return Value{Path: path, Default: string(text), Meaning: meaning}, nil
}

// comment joins the lines of the last paragraph, if that starts with the mark.
func comment(head string) (string, bool) {
	paragraphs := strings.Split(head, "\n\n")
	last, ok := strings.CutPrefix(paragraphs[len(paragraphs)-1], mark)
	if !ok {
		return "", false
	}
	return strings.ReplaceAll(last, "\n# ", " "), true
}

// Table writes values as rows of Markdown.
func Table(values []Value) string {
	var b strings.Builder
	b.WriteString("| Value | Default | Meaning |\n|-------|---------|---------|\n")
	for _, v := range values {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", v.Path, v.Default, strings.ReplaceAll(v.Meaning, "|", `\|`))
	}
	return b.String()
}
