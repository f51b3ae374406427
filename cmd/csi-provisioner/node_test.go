package main

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestNodeDeploymentRefused(t *testing.T) {
	tests := map[string]struct {
		node  string
		flags string
		says  string
	}{
		"no node":          {"", "", "NODE_NAME"},
		"leader election":  {"n", "--leader-election", "--leader-election"},
		"no topology":      {"n", "--feature-gates=Topology=false", "Topology"},
		"nothing is wrong": {"n", "--node-deployment-base-delay=1s --node-deployment-max-delay=1s", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("NODE_NAME", test.node)
			parsed, err := parseFlags(append([]string{"--node-deployment"}, strings.Fields(test.flags)...), &bytes.Buffer{})
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

func TestEachNodeHasAJournal(t *testing.T) {
	names := map[string]string{}
	longest := strings.Repeat(strings.Repeat("n", 60)+".", 4) + "com"
	for _, c := range []struct {
		driver string
		node   NodeConfig
	}{
		{"a.b", NodeConfig{Name: "unused"}},
		{"a", NodeConfig{Enabled: true, Name: "b.c"}},
		{"a", NodeConfig{Enabled: true, Name: "b.c.0"}},
		{"a", NodeConfig{Enabled: true, Name: "0"}},
		{"a", NodeConfig{}},
		{"a.b", NodeConfig{Enabled: true, Name: "c"}},
		{"a-b", NodeConfig{Enabled: true, Name: "d"}},
		{"a", NodeConfig{Enabled: true, Name: longest}},
		{"a", NodeConfig{Enabled: true, Name: longest + "x"}},
	} {
		for _, name := range []string{c.node.journalOf(c.driver) + ".0", c.node.formerJournalOf(c.driver)} {
			if other, taken := names[name]; taken {
				t.Errorf("%s of driver %s and %s of another: the same journal %s", c.node.Name, c.driver, other, name)
			}
			names[name] = c.node.Name
			if problems := validation.IsDNS1123Subdomain(name); problems != nil {
				t.Errorf("%q: %v", name, problems)
			}
		}
	}
	if name, former := (NodeConfig{}).journalOf("a.b"), (NodeConfig{}).formerJournalOf("a.b"); name != "csi-provisioner.a-b" || former != "csi-provisioner-a-b" {
		t.Errorf("of all nodes: %s, formerly %s", name, former)
	}
}
