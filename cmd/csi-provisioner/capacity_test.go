package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCapacityRefused(t *testing.T) {
	for name, test := range map[string]struct {
		namespace, pod, flags string
		says                  string
	}{
		"no namespace":     {"", "p", "", "NAMESPACE"},
		"no pod":           {"n", "", "", "POD_NAME"},
		"nobody owns":      {"n", "", "--capacity-ownerref-level=-1", ""},
		"below nobody":     {"n", "", "--capacity-ownerref-level=-2", ""},
		"no threads":       {"n", "p", "--capacity-threads=0", "--capacity-threads"},
		"no interval":      {"n", "p", "--capacity-poll-interval=0s", "--capacity-poll-interval"},
		"nothing is wrong": {"n", "p", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NAMESPACE", test.namespace)
			t.Setenv("POD_NAME", test.pod)
			parsed, err := parseFlags(append([]string{"--enable-capacity"}, strings.Fields(test.flags)...), &bytes.Buffer{})
			if err != nil {
				t.Fatal(err)
			}
			err = parsed.config.validate()
			if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
				t.Errorf("validate() = %v, want an error that says %q", err, test.says)
			}
		})
	}
}
