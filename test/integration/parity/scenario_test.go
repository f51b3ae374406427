package parity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// scenario is an entry of testdata/scenarios. In its texts, $NAME is the name of its
// StorageClass, of the namespace of its claims and of the domain of its topology keys,
// $NAME-sys the namespace of csi-provisioner, $DRIVER the driver's name and $PORT a free
// port; <uid of CLAIM> is the UID of a claim that is there.
type scenario struct {
	Name string `json:"name"`
	// Each makes one scenario of each value, which replaces $each; in names in lower case.
	Each []string `json:"each,omitempty"`
	// Flags and Env are added to what every csi-provisioner is started with.
	Flags []string `json:"flags,omitempty"`
	Env   []string `json:"env,omitempty"`
	// Bare leaves out fastFlags.
	Bare bool `json:"bare,omitempty"`
	// Needs are permissions beside the base: attach, topology, capacity, secrets or
	// attributes.
	Needs []string `json:"needs,omitempty"`
	// Endless is a scenario with calls that are repeated until csi-provisioner is stopped:
	// how often is not compared.
	Endless bool `json:"endless,omitempty"`
	// Unsteady are fields that external-provisioner itself does not repeat from run to run.
	Unsteady []string               `json:"unsteady,omitempty"`
	Driver   script                 `json:"driver,omitempty"`
	Class    storagev1.StorageClass `json:"class,omitempty"`
	// Claim and Until are the steps of most: the claim is made and awaited until it is
	// bound, until it has failed, or until its volume is gone after its deletion.
	Claim json.RawMessage `json:"claim,omitempty"`
	Until string          `json:"until,omitempty"`
	Steps []step          `json:"steps,omitempty"`

	// group is the file without its extension.
	group string
	// text is the scenario before $NAME and the rest are replaced.
	text []byte
}

// script is what the CSI driver declares and how it answers.
type script struct {
	Name string `json:"name,omitempty"`
	// Capabilities are added to CREATE_DELETE_VOLUME, which Unable takes away.
	Capabilities []string `json:"capabilities,omitempty"`
	Unable       bool     `json:"unable,omitempty"`
	Topology     bool     `json:"topology,omitempty"`
	// Place is the topology of the driver's own node.
	Place map[string]string `json:"place,omitempty"`
	// Strict answers AlreadyExists to a request that differs from the one that has made
	// the volume.
	Strict bool   `json:"strict,omitempty"`
	Create []rule `json:"create,omitempty"`
	Delete []rule `json:"delete,omitempty"`
}

// rule is for some of the calls for a volume; the first that fits applies.
type rule struct {
	// Call is the number of the call, from 1; UpTo is of the last one of several. Without
	// both, the rule is for every call.
	Call int `json:"call,omitempty"`
	UpTo int `json:"upTo,omitempty"`
	// Unmade does not make the volume.
	Unmade bool `json:"unmade,omitempty"`
	// Steps and Pause come between the volume and the answer.
	Steps []step          `json:"steps,omitempty"`
	Pause metav1.Duration `json:"pause,omitempty"`
	Code  string          `json:"code,omitempty"`
	// Empty answers without a volume; Answer replaces fields of the volume in the answer,
	// and removes those that are null.
	Empty  bool                       `json:"empty,omitempty"`
	Answer map[string]json.RawMessage `json:"answer,omitempty"`
}

func (r rule) fits(call int) bool {
	return r.Call == 0 && r.UpTo == 0 || r.Call == call || call <= r.UpTo
}

// step is a name, or a name with an argument.
type step struct {
	name     string
	argument json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *step) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, &s.name); err == nil {
		return nil
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(data, &object); err != nil || len(object) != 1 {
		return fmt.Errorf("step %s is not a name, nor a name with an argument", data)
	}
	for s.name, s.argument = range object {
		if actions()[s.name] == nil {
			return fmt.Errorf("there is no step %q", s.name)
		}
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (s step) MarshalJSON() ([]byte, error) {
	if s.argument == nil {
		return json.Marshal(s.name)
	}
	return json.Marshal(map[string]json.RawMessage{s.name: s.argument})
}

// loadScenarios reads all files of a directory.
func loadScenarios(dir string) ([]scenario, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var all []scenario
	names := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var entries []json.RawMessage
		if err := yaml.Unmarshal(text, &entries); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, entry := range entries {
			expanded, err := expand(entry)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			for _, s := range expanded {
				if names[s.Name] {
					return nil, fmt.Errorf("%s: two scenarios are called %s", file, s.Name)
				}
				names[s.Name] = true
				s.group = strings.TrimSuffix(filepath.Base(file), ".yaml")
				all = append(all, s)
			}
		}
	}
	return all, nil
}

// expand is the entry, once for each value of `each`.
func expand(entry []byte) ([]scenario, error) {
	first, err := parseScenario(entry)
	if err != nil {
		return nil, err
	}
	if len(first.Each) == 0 {
		return []scenario{first}, nil
	}
	var all []scenario
	for _, value := range first.Each {
		s, err := parseScenario(bytes.ReplaceAll(entry, []byte("$each"), []byte(value)))
		if err != nil {
			return nil, err
		}
		s.Name = strings.ToLower(s.Name)
		all = append(all, s)
	}
	return all, nil
}

func parseScenario(text []byte) (scenario, error) {
	s := scenario{text: text}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return s, fmt.Errorf("scenario %s: %w", text[:min(len(text), 80)], err)
	}
	if (s.Until == "") == (len(s.Steps) == 0) {
		return s, fmt.Errorf("scenario %s: it has both `until` and `steps`, or neither", s.Name)
	}
	return s, nil
}

// filled is the scenario with its placeholders replaced.
func (s scenario) filled(values ...string) (scenario, error) {
	filled, err := parseScenario([]byte(strings.NewReplacer(values...).Replace(string(s.text))))
	filled.Name, filled.group, filled.text = s.Name, s.group, s.text
	if err != nil || filled.Until == "" {
		return filled, err
	}
	claim := filled.Claim
	if claim == nil {
		claim = json.RawMessage("{}")
	}
	filled.Steps = []step{{name: "start"}, {name: "claim", argument: claim}}
	switch filled.Until {
	case "bound":
		filled.Steps = append(filled.Steps, step{"bound", json.RawMessage(`["claim"]`)})
	case "gone":
		filled.Steps = append(filled.Steps, step{"bound", json.RawMessage(`["claim"]`)},
			step{"deleteClaims", json.RawMessage(`["claim"]`)}, step{name: "gone"})
	case "failed":
		filled.Steps = append(filled.Steps, step{"failed", json.RawMessage(`"claim"`)})
	default:
		return filled, fmt.Errorf("scenario %s: until is %q, want bound, failed or gone", s.Name, filled.Until)
	}
	return filled, nil
}
