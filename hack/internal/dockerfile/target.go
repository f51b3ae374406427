package dockerfile

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
)

const scratch = "scratch"

// Target is what a stage that starts from scratch says about its image.
type Target struct {
	Copies     []Copy
	Entrypoint []string
	Cmd        []string
	User       string
	WorkingDir string
	Labels     map[string]string
}

// Copy takes one file from an earlier stage.
type Copy struct {
	Stage string
	From  string
	To    string
}

// Target reads the named stage. args are the build arguments; they count only
// where the stage declares them with ARG, as in an engine.
func (f File) Target(name string, args map[string]string) (Target, error) {
	for i, stage := range f.Stages {
		if stage.Name != name {
			continue
		}
		if stage.Base != scratch {
			return Target{}, fmt.Errorf("stage %s: %w: FROM %s, want FROM %s", name, ErrUnsupported, stage.Base, scratch)
		}
		reader := targetReader{
			earlier: f.Stages[:i],
			args:    args,
			vars:    map[string]string{},
			target:  Target{Labels: map[string]string{}},
		}
		for _, in := range stage.Instructions {
			if err := reader.read(in); err != nil {
				return Target{}, fmt.Errorf("stage %s: %w", name, err)
			}
		}
		return reader.target, nil
	}
	return Target{}, fmt.Errorf("no stage is named %q", name)
}

type targetReader struct {
	earlier []Stage
	args    map[string]string
	vars    map[string]string
	target  Target
}

func (r *targetReader) read(in Instruction) error {
	if in.Keyword == "ARG" {
		return r.declare(in)
	}
	expanded, err := r.expand(in)
	if err != nil {
		return err
	}
	switch in.Keyword {
	case "COPY":
		return r.copyFile(expanded)
	case "LABEL":
		pairs, err := keyValues(expanded)
		maps.Copy(r.target.Labels, pairs)
		return err
	case "ENTRYPOINT":
		return execForm(expanded, &r.target.Entrypoint)
	case "CMD":
		return execForm(expanded, &r.target.Cmd)
	case "USER":
		return oneWord(expanded, &r.target.User)
	case "WORKDIR":
		return oneWord(expanded, &r.target.WorkingDir)
	default:
		return in.unsupported("unknown instruction in a stage that starts from scratch")
	}
}

func (r *targetReader) declare(in Instruction) error {
	name, fallback, _ := strings.Cut(in.Args, "=")
	if name == "" || strings.ContainsAny(in.Args, " \"'$") {
		return in.unsupported("want ARG NAME or ARG NAME=VALUE, unquoted")
	}
	r.vars[name] = fallback
	if value, ok := r.args[name]; ok {
		r.vars[name] = value
	}
	return nil
}

func (r *targetReader) expand(in Instruction) (Instruction, error) {
	var err error
	in.Args = os.Expand(in.Args, func(name string) string {
		value, ok := r.vars[name]
		if !ok {
			err = in.unsupported("no ARG declares $" + name)
		}
		return value
	})
	return in, err
}

func (r *targetReader) copyFile(in Instruction) error {
	words := strings.Fields(in.Args)
	if len(words) != 3 || !strings.HasPrefix(words[0], "--from=") {
		return in.unsupported("want COPY --from=STAGE FILE FILE")
	}
	c := Copy{Stage: strings.TrimPrefix(words[0], "--from="), From: words[1], To: words[2]}
	if strings.HasSuffix(c.To, "/") || strings.ContainsAny(c.From, "*?[") {
		return in.unsupported("patterns and directories")
	}
	for _, stage := range r.earlier {
		if stage.Name == c.Stage {
			r.target.Copies = append(r.target.Copies, c)
			return nil
		}
	}
	return in.unsupported("no earlier stage is named " + c.Stage)
}

// keyValues reads k=v pairs; values are bare words or in double quotes.
func keyValues(in Instruction) (map[string]string, error) {
	pairs := map[string]string{}
	rest := in.Args
	for rest != "" {
		key, after, ok := strings.Cut(rest, "=")
		if !ok || key == "" || strings.ContainsAny(key, " \"") {
			return nil, in.unsupported("want KEY=VALUE or KEY=\"VALUE\"")
		}
		value, tail, err := value(after)
		if err != nil {
			return nil, in.unsupported(err.Error())
		}
		pairs[key] = value
		rest = strings.TrimSpace(tail)
	}
	return pairs, nil
}

func value(s string) (word, rest string, err error) {
	if !strings.HasPrefix(s, `"`) {
		word, rest, _ = strings.Cut(s, " ")
		return word, rest, nil
	}
	word, rest, closed := strings.Cut(s[1:], `"`)
	if !closed || strings.Contains(word, `\`) {
		return "", "", fmt.Errorf("a value with an open quote or a backslash")
	}
	return word, rest, nil
}

func execForm(in Instruction, into *[]string) error {
	var words []string
	if err := json.Unmarshal([]byte(in.Args), &words); err != nil || len(words) == 0 {
		return in.unsupported(`want the exec form, ["/program", "argument"]`)
	}
	*into = words
	return nil
}

func oneWord(in Instruction, into *string) error {
	if in.Args == "" || strings.ContainsAny(in.Args, " \"'") {
		return in.unsupported("want one bare word")
	}
	*into = in.Args
	return nil
}
