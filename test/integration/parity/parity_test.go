// Package parity compares csi-provisioner with recordings of external-provisioner: both
// do the same scenarios on a real API server, with a CSI driver that follows a script,
// and what there is to see then is compared field by field. Each scenario is done with
// the permissions of deploy/kubernetes and with those of external-provisioner's
// manifests. docs/development.md tells how to add one.
//
//	KUBE_BINARY=$(lab build) CSI_PROVISIONER=bin/csi-provisioner go test ./integration/parity -run 'TestParity/scenarios/.*/^restore$'
package parity

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/nfs-csi/nfs-csi/test/integration/cluster"
)

const (
	kubeBinaryEnv  = "KUBE_BINARY"
	provisionerEnv = "CSI_PROVISIONER"

	scenariosDir   = "testdata/scenarios"
	recordingsDir  = "testdata/recorded"
	permissionFile = "testdata/permissions.yaml"
	pendingFile    = "testdata/pending.txt"

	page    = "../../../docs/provisioner.md"
	heading = "Differences from external-provisioner"

	startTimeout = time.Minute
	// concurrent scenarios: most of the time, each waits.
	concurrent = "16"

	original = "original"
	shipped  = "shipped"
)

// suite is what the tests share.
type suite struct {
	cluster     *cluster.Cluster
	dynamic     dynamic.Interface
	provisioner string
	auditLog    string
	permissions map[string]permissions
	drivers     drivers
}

func TestMain(m *testing.M) {
	flag.String("record", "", "write what csi-provisioner does into the recordings in this `directory`, instead of comparing with them")
	flag.Parse()
	if err := flag.Set("test.parallel", concurrent); err != nil {
		fmt.Fprintln(os.Stderr, "parity:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func recordInto() string { return flag.Lookup("record").Value.String() }

func startSuite(t *testing.T) *suite {
	t.Helper()
	binary, provisioner := os.Getenv(kubeBinaryEnv), os.Getenv(provisionerEnv)
	if binary == "" || provisioner == "" {
		t.Skipf("needs %s and %s", kubeBinaryEnv, provisionerEnv)
	}
	s := &suite{provisioner: provisioner, permissions: map[string]permissions{}}
	var err error
	if s.permissions[original], err = originalPermissions(permissionFile); err != nil {
		t.Fatal(err)
	}
	if s.permissions[shipped], err = shippedPermissions(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	policy := filepath.Join(dir, "audit.yaml")
	// Service accounts are csi-provisioners.
	text := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n" +
		"  - {level: Metadata, userGroups: [\"system:serviceaccounts\"]}\n  - {level: None}\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if s.cluster, err = cluster.Start(ctx, binary,
		"--audit-policy-file="+policy, "--audit-log-path="+auditLog(dir), "--audit-log-mode=blocking",
		// Scenarios come and go faster than anything that this would slow down.
		"--enable-priority-and-fairness=false"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.auditLog = auditLog(dir)
	if s.dynamic, err = dynamic.NewForConfig(s.cluster.AdminConfig()); err != nil {
		t.Fatal(err)
	}
	if err := s.installSnapshots(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

func auditLog(dir string) string { return filepath.Join(dir, "audit.log") }

// installSnapshots adds the API of snapshots.
func (s *suite) installSnapshots(ctx context.Context) error {
	definitions := s.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, name := range []string{"VolumeSnapshot", "VolumeSnapshotContent"} {
		k, scope := kinds()[name], "Cluster"
		if k.namespaced {
			scope = "Namespaced"
		}
		if _, err := definitions.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1",
			"kind":       "CustomResourceDefinition",
			"metadata": map[string]any{
				"name":        k.resource.GroupResource().String(),
				"annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, in a test"},
			},
			"spec": map[string]any{
				"group": k.resource.Group,
				"scope": scope,
				"names": map[string]any{"kind": name, "listKind": name + "List", "plural": k.resource.Resource, "singular": strings.ToLower(name)},
				"versions": []any{map[string]any{
					"name": k.resource.Version, "served": true, "storage": true,
					"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}},
			},
		}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		for {
			_, err := s.dynamic.Resource(k.resource).List(ctx, metav1.ListOptions{})
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%s is never served: %w", name, err)
			}
			time.Sleep(pollInterval)
		}
	}
	return nil
}

// newWorld runs a scenario with some permissions; id is unique.
func (s *suite) newWorld(t *testing.T, sc scenario, id string) *world {
	t.Helper()
	w := &world{
		T: t, scenario: sc, cluster: s.cluster, client: s.cluster.Admin, dynamic: s.dynamic, provisioner: s.provisioner,
		id: id, driverName: id + ".parity.test", dir: t.TempDir(), auditLog: s.auditLog,
	}
	if sc.Driver.Name != "" {
		w.driverName = sc.Driver.Name
		t.Cleanup(s.drivers.lock(w.driverName))
	}
	info, err := os.Stat(s.auditLog)
	if err == nil {
		w.auditFrom = info.Size()
	} else if !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return w
}

// verdict judges the differences of each scenario.
type verdict struct {
	recordings *recordings
	pending    []string

	mu        sync.Mutex
	allowlist table
	// differs are the permissions with which a scenario has run, and whether it differs.
	differs map[string]map[string]bool
}

func loadVerdict(scenarios []scenario) (*verdict, error) {
	v := &verdict{differs: map[string]map[string]bool{}}
	var err error
	if v.recordings, err = loadRecordings(recordingsDir); err != nil {
		return nil, err
	}
	if v.allowlist, err = readTable(page, heading); err != nil {
		return nil, err
	}
	v.pending, err = readPending(pendingFile, scenarios)
	return v, err
}

// open are the differences of a run that the table does not have.
func (v *verdict) open(r run, ours map[string]any) ([]difference, error) {
	name := r.scenario.Name
	theirs, found := v.recordings.of(r.scenario)
	if !found {
		return nil, fmt.Errorf("%s has no recording of %s", recordingsDir, name)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	open := slices.DeleteFunc(compare("", withBound(theirs), withBound(ours)), func(d difference) bool {
		return r.scenario.unsteady(d) || v.allowlist.allows(name, d)
	})
	if v.differs[name] == nil {
		v.differs[name] = map[string]bool{}
	}
	v.differs[name][r.mode] = len(open) > 0
	return open, nil
}

// outdated are the entries of both lists for which nothing differs any more. That shows
// when a scenario has run with all permissions, and for the table when all have.
func (v *verdict) outdated(scenarios, permissions int) (texts []string) {
	for _, name := range v.pending {
		modes := v.differs[name]
		if len(modes) == permissions && !slices.Contains(slices.Collect(maps.Values(modes)), true) {
			texts = append(texts, fmt.Sprintf("%s does not differ any more: remove it from pending (%s)", name, pendingFile))
		}
	}
	runs := 0
	for _, modes := range v.differs {
		runs += len(modes)
	}
	if runs < scenarios*permissions {
		return texts
	}
	for _, text := range v.allowlist.unused() {
		texts = append(texts, fmt.Sprintf("nothing differs any more in %s: remove it from the table in %s", text, page))
	}
	return texts
}

// unsteady reports whether external-provisioner itself does not repeat the field.
func (s scenario) unsteady(d difference) bool {
	return slices.ContainsFunc(s.Unsteady, func(text string) bool {
		p, err := newPattern(text, true)
		return err == nil && p.regexp.MatchString(d.field)
	})
}

func TestParity(t *testing.T) {
	scenarios, err := loadScenarios(scenariosDir)
	if err != nil {
		t.Fatal(err)
	}
	v, err := loadVerdict(scenarios)
	if err != nil {
		t.Fatal(err)
	}
	s, modes := startSuite(t), []string{original, shipped}
	var runs []run
	for m, mode := range modes {
		for i, sc := range scenarios {
			runs = append(runs, run{sc, mode, fmt.Sprintf("w%dx%d", i, m)})
		}
	}
	_, again := s.runAll(t, "scenarios", runs, v, (*testing.T).Logf)
	// On a machine with other work, what a scenario waits for may be late.
	if ran, _ := s.runAll(t, "scenarios-again", again, v, (*testing.T).Errorf); ran < len(again) {
		t.Errorf("%d scenarios differ, and -run leaves out their second runs (scenarios-again)", len(again)-ran)
	}
	if recordInto() != "" {
		return
	}
	for _, text := range v.outdated(len(scenarios), len(modes)) {
		t.Error(text)
	}
}

// run is a scenario with some permissions; its id is unique.
type run struct {
	scenario scenario
	mode, id string
}

// runAll runs scenarios at the same time. It reports what differs and may not, and
// returns how many have run, and those that differ.
func (s *suite) runAll(t *testing.T, name string, runs []run, v *verdict, report func(*testing.T, string, ...any)) (ran int, differ []run) {
	t.Helper()
	var mu sync.Mutex
	// Returns when the parallel tests in it are over.
	t.Run(name, func(t *testing.T) {
		for _, r := range runs {
			t.Run(r.mode+"/"+r.scenario.Name, func(t *testing.T) {
				t.Parallel()
				same := s.same(t, v, r, report)
				mu.Lock()
				defer mu.Unlock()
				ran++
				if !same {
					r.id += "again"
					differ = append(differ, r)
				}
			})
		}
	})
	return ran, differ
}

// same runs a scenario and reports whether nothing differs that may not. To record, it
// is always the same.
func (s *suite) same(t *testing.T, v *verdict, r run, report func(*testing.T, string, ...any)) bool {
	t.Helper()
	w := s.newWorld(t, r.scenario, r.id)
	w.play(s.permissions[r.mode])
	ours, err := w.tree()
	if err != nil {
		t.Fatal(err)
	}
	if dir := recordInto(); dir != "" {
		if err := v.recordings.write(dir, r.scenario, ours); err != nil {
			t.Fatal(err)
		}
		return true
	}
	open, err := v.open(r, ours)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(v.pending, r.scenario.Name) {
		for _, d := range open {
			t.Logf("pending: %s", d)
		}
		return true
	}
	for _, d := range open {
		report(t, "not in the table of %s: %s", page, d)
	}
	if len(open) > 0 && w.process != nil {
		t.Log(w.process.Tail())
	}
	return len(open) == 0
}

// readPending reads names of scenarios, one a line.
func readPending(path string, scenarios []scenario) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		name := strings.TrimSpace(line)
		if name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		if !slices.ContainsFunc(scenarios, func(s scenario) bool { return s.Name == name }) {
			return nil, fmt.Errorf("%s: there is no scenario %q", path, name)
		}
		names = append(names, name)
	}
	return names, nil
}

// recordings are trees by group and scenario.
type recordings struct {
	mu     sync.Mutex
	groups map[string]map[string]any
}

func loadRecordings(dir string) (*recordings, error) {
	r := &recordings{groups: map[string]map[string]any{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		group := map[string]any{}
		if err := yaml.Unmarshal(text, &group); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		r.groups[strings.TrimSuffix(filepath.Base(file), ".yaml")] = group
	}
	return r, nil
}

func (r *recordings) of(s scenario) (tree map[string]any, found bool) {
	tree, found = r.groups[s.group][s.Name].(map[string]any)
	return tree, found
}

// write puts a tree into its group's file.
func (r *recordings) write(dir string, s scenario, tree map[string]any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.groups[s.group] == nil {
		r.groups[s.group] = map[string]any{}
	}
	r.groups[s.group][s.Name] = tree
	text, err := yaml.Marshal(r.groups[s.group])
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, s.group+".yaml"), text, 0o644)
}
