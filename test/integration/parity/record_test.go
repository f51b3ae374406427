package parity

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// capacityCalls is the key of the calls that are not about a volume.
const capacityCalls = "capacity"

// record is what a scenario has shown. Objects are without what differs from run to run.
type record struct {
	// Exit is the status of a csi-provisioner that ended by itself.
	Exit       *int     `json:"exit,omitempty"`
	Milestones []string `json:"milestones,omitempty"`
	// Calls are by the volume's name. GetCapacity is polled: each of its calls is there
	// once.
	Calls map[string][]call `json:"calls,omitempty"`
	// Identity are the calls before the first volume, unless they are those of every driver.
	Identity []string `json:"identity,omitempty"`
	// Driver are the volumes that the driver has at the end, Leaked those of them without
	// a PersistentVolume.
	Driver []string `json:"driver,omitempty"`
	Leaked []string `json:"leaked,omitempty"`
	// Bound are claims and volumes when they were bound, where that is not how they ended.
	Bound      map[string]pair          `json:"bound,omitempty"`
	Volumes    map[string]volumeState   `json:"volumes,omitempty"`
	Claims     map[string]claimState    `json:"claims,omitempty"`
	Snapshots  map[string]metadataState `json:"snapshots,omitempty"`
	Capacities []string                 `json:"capacities,omitempty"`
	Leases     map[string]leaseState    `json:"leases,omitempty"`
	// Events are OBJECT TYPE REASON: their words are not an interface.
	Events []string `json:"events,omitempty"`
	// Metrics are type and labels by name.
	Metrics map[string]string `json:"metrics,omitempty"`
	// Denied are requests that were answered 403.
	Denied []string `json:"denied,omitempty"`
}

type metadataState struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Finalizers  []string          `json:"finalizers,omitempty"`
	Deleting    bool              `json:"deleting,omitempty"`
}

type volumeState struct {
	metadataState
	Phase corev1.PersistentVolumePhase `json:"phase,omitempty"`
	Spec  corev1.PersistentVolumeSpec  `json:"spec"`
}

type claimState struct {
	metadataState
	Phase corev1.PersistentVolumeClaimPhase `json:"phase,omitempty"`
}

type leaseState struct {
	Holder   string            `json:"holder"`
	Duration int32             `json:"duration"`
	Labels   map[string]string `json:"labels,omitempty"`
}

type pair struct {
	Claim  claimState  `json:"claim"`
	Volume volumeState `json:"volume"`
}

func newRecord() *record {
	return &record{
		Calls: map[string][]call{}, Bound: map[string]pair{}, Volumes: map[string]volumeState{}, Claims: map[string]claimState{},
		Snapshots: map[string]metadataState{}, Leases: map[string]leaseState{},
	}
}

// usualIdentity are the calls with which every driver is asked what it can.
func usualIdentity() []string {
	return []string{"ControllerGetCapabilities", "GetPluginCapabilities", "GetPluginInfo", "Probe"}
}

// libraryMetrics are prefixes of metrics that are not about provisioning.
func libraryMetrics() []string {
	return []string{
		"aggregator_", "apiserver_", "authenti", "authoriz", "cardinality_", "disabled_", "etcd_", "feature_enabled",
		"field_validation", "go_", "hidden_", "informer_", "kubernetes_", "node_authorizer", "pod_security", "process_",
		"promhttp_", "reflector_", "registered_", "rest_client", "watch_cache",
	}
}

func stateOf(object metav1.Object) metadataState {
	state := metadataState{
		Annotations: object.GetAnnotations(), Labels: maps.Clone(object.GetLabels()),
		Finalizers: object.GetFinalizers(), Deleting: object.GetDeletionTimestamp() != nil,
	}
	delete(state.Labels, ownerLabel)
	return state
}

func volumeStateOf(volume *corev1.PersistentVolume) volumeState {
	state := volumeState{metadataState: stateOf(volume), Phase: volume.Status.Phase, Spec: *volume.Spec.DeepCopy()}
	if state.Spec.ClaimRef != nil {
		state.Spec.ClaimRef.ResourceVersion = ""
	}
	if state.Spec.NodeAffinity != nil {
		// external-provisioner writes the keys of a term in random order.
		for _, term := range state.Spec.NodeAffinity.Required.NodeSelectorTerms {
			slices.SortFunc(term.MatchExpressions, func(a, b corev1.NodeSelectorRequirement) int { return strings.Compare(a.Key, b.Key) })
		}
	}
	return state
}

// keep notes how a claim that is bound looks, and its volume. Their phases come one
// after the other.
func (w *world) keep(name string) error {
	bound := w.claim(name)
	volume, err := w.client.CoreV1().PersistentVolumes().Get(w.Context(), bound.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	state := volumeStateOf(volume)
	state.Phase = ""
	w.learn(name, bound.UID)
	w.record.Bound[name] = pair{claimState{stateOf(bound), bound.Status.Phase}, state}
	return nil
}

// learn remembers what to write for a UID in its forms.
func (w *world) learn(name string, uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if uid == "" || slices.Contains(w.uids, string(uid)) {
		return
	}
	const digits = 8
	short := strings.ReplaceAll(string(uid), "-", "")
	w.uids = append(w.uids, string(uid), "<uid of "+name+">", short, "<hex uid of "+name+">", "pre-"+short[:digits], "pre-<8 of "+name+">")
}

// collect reads everything at the end.
func (w *world) collect() {
	w.Helper()
	for _, read := range []func() error{w.collectVolumes, w.collectSnapshots, w.collectCapacities, w.collectLeases, w.collectEvents, w.collectDenied} {
		if err := read(); err != nil {
			w.Error(err)
		}
	}
	w.record.Driver = w.driver.volumes()
	for _, name := range w.record.Driver {
		if _, saved := w.record.Volumes[name]; !saved {
			w.record.Leaked = append(w.record.Leaked, name)
		}
	}
	w.driver.mu.Lock()
	defer w.driver.mu.Unlock()
	for volume, calls := range w.driver.calls {
		w.record.Calls[volume] = w.condensed(volume, calls)
	}
	if identity := sortedKeys(w.driver.identity); len(identity) == 0 {
		w.record.Identity = []string{none}
	} else if !slices.Equal(identity, usualIdentity()) {
		w.record.Identity = identity
	}
}

func (w *world) collectVolumes() error {
	for _, volume := range w.volumes() {
		w.record.Volumes[volume.Name] = volumeStateOf(&volume)
	}
	list, err := w.client.CoreV1().PersistentVolumeClaims(w.id).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, c := range list.Items {
		w.learn(c.Name, c.UID)
		w.record.Claims[c.Name] = claimState{stateOf(&c), c.Status.Phase}
	}
	for name, then := range w.record.Bound {
		volume, saved := w.volumeOf(name)
		volume.Phase = ""
		if now, kept := w.record.Claims[name]; kept && saved && sameJSON(then, pair{now, volume}) {
			delete(w.record.Bound, name)
		}
	}
	return nil
}

// volumeOf is the volume at the end of a claim.
func (w *world) volumeOf(claim string) (volumeState, bool) {
	for _, volume := range w.record.Volumes {
		if ref := volume.Spec.ClaimRef; ref != nil && ref.Name == claim && ref.Namespace == w.id {
			return volume, true
		}
	}
	return volumeState{}, false
}

func (w *world) collectSnapshots() error {
	list, err := w.dynamic.Resource(kinds()["VolumeSnapshot"].resource).Namespace(w.id).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, s := range list.Items {
		w.record.Snapshots[s.GetName()] = stateOf(&s)
	}
	return nil
}

func (w *world) collectCapacities() error {
	list, err := w.client.StorageV1().CSIStorageCapacities(w.system()).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, c := range list.Items {
		var owners []string
		for _, owner := range c.OwnerReferences {
			owners = append(owners, owner.Kind+"/"+owner.Name)
		}
		w.record.Capacities = append(w.record.Capacities, fmt.Sprintf("%s %v capacity=%s max=%v owners=%v labels=%v",
			c.StorageClassName, metav1.FormatLabelSelector(c.NodeTopology), c.Capacity, c.MaximumVolumeSize, owners, c.Labels))
	}
	return nil
}

func (w *world) collectLeases() error {
	list, err := w.client.CoordinationV1().Leases(w.system()).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, lease := range list.Items {
		state := leaseState{Holder: "somebody", Labels: lease.Labels}
		if holder := lease.Spec.HolderIdentity; holder == nil || *holder == "" {
			state.Holder = "nobody"
		}
		if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
			state.Duration = *seconds
		}
		w.record.Leases[lease.Name] = state
	}
	return nil
}

// collectEvents reads the driver's own: others bind claims.
func (w *world) collectEvents() error {
	for _, namespace := range []string{w.id, metav1.NamespaceDefault} {
		list, err := w.client.CoreV1().Events(namespace).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Source.Component != w.driverName && !strings.HasPrefix(e.Source.Component, w.driverName+"_") {
				continue
			}
			if e.InvolvedObject.Kind == "PersistentVolumeClaim" {
				if e.InvolvedObject.Namespace != w.id {
					continue
				}
				w.learn(e.InvolvedObject.Name, e.InvolvedObject.UID)
			} else if !strings.Contains(e.InvolvedObject.Name, w.id) && !slices.Contains(w.uids, strings.TrimPrefix(e.InvolvedObject.Name, "pvc-")) {
				// Of a scenario that has chosen the same driver name.
				continue
			}
			w.record.Events = append(w.record.Events, fmt.Sprintf("%s/%s %s %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Type, e.Reason))
		}
	}
	return nil
}

// collectDenied reads the audit log of the scenario's time.
func (w *world) collectDenied() error {
	file, err := os.Open(w.auditLog)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(w.auditFrom, io.SeekStart); err != nil {
		return err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	user := []byte("system:serviceaccount:" + w.system() + ":" + account)
	for line := range bytes.Lines(text) {
		if !bytes.Contains(line, user) || !bytes.Contains(line, []byte(`"code":403`)) {
			continue
		}
		var entry struct {
			Verb      string
			ObjectRef struct{ Resource, Subresource string }
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			return err
		}
		w.record.Denied = append(w.record.Denied, strings.TrimSuffix(entry.Verb+" "+entry.ObjectRef.Resource+"/"+entry.ObjectRef.Subresource, "/"))
	}
	return nil
}

// condensed is calls with the same ones in a row, and the same rounds of calls in a
// row, as one that counts them.
func (w *world) condensed(volume string, calls []call) []call {
	if volume == capacityCalls {
		return once(calls)
	}
	const longestRound = 4
	for round := 1; round <= longestRound; round++ {
		for i := 0; i+2*round <= len(calls); {
			first, second := calls[i:i+round], calls[i+round:i+2*round]
			if !slices.EqualFunc(first, second, call.equal) {
				i++
				continue
			}
			for j := range first {
				first[j].Times += second[j].Times
			}
			calls = slices.Delete(calls, i+round, i+2*round)
		}
	}
	for i := range calls {
		// external-provisioner deletes a volume once or twice, from run to run.
		if w.Endless || calls[i].Method == "DeleteVolume" && calls[i].Code == "OK" {
			calls[i].Times = 0
		}
	}
	return calls
}

// once is each call without its number, sorted.
func once(calls []call) []call {
	var distinct []call
	for _, c := range calls {
		c.Times = 0
		if !slices.ContainsFunc(distinct, c.equal) {
			distinct = append(distinct, c)
		}
	}
	slices.SortFunc(distinct, func(a, b call) int { return strings.Compare(brief(a.Request), brief(b.Request)) })
	return distinct
}

// tree is the record as compared and stored: without names and numbers of this run.
func (w *world) tree() (map[string]any, error) {
	text, err := json.Marshal(w.record)
	if err != nil {
		return nil, err
	}
	var raw any
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, err
	}
	replacer := strings.NewReplacer(append([]string{
		w.driverName, "DRIVER", strings.ReplaceAll(w.driverName, ".", "-"), "DRIVER", w.id, "NAME",
	}, w.uids...)...)
	identity := regexp.MustCompile(`\b\d{13}-\d{1,5}-`)
	tree, _ := rewritten(raw, func(text string) string {
		return identity.ReplaceAllString(replacer.Replace(text), "<start>-<n>-")
	}).(map[string]any)
	for _, set := range []string{"events", "denied", "driver", "leaked", "capacities"} {
		list, _ := tree[set].([]any)
		if len(list) == 0 {
			continue
		}
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
		tree[set] = slices.Compact(list)
	}
	return tree, nil
}

// rewritten applies a function to every text of a JSON value, keys too.
func rewritten(value any, rewrite func(string) string) any {
	switch v := value.(type) {
	case string:
		return rewrite(v)
	case []any:
		for i := range v {
			v[i] = rewritten(v[i], rewrite)
		}
	case map[string]any:
		other := make(map[string]any, len(v))
		for key, field := range v {
			other[rewrite(key)] = rewritten(field, rewrite)
		}
		return other
	}
	return value
}

// metricNames are types and labels by name, of metrics in the text format.
func metricNames(text string) map[string]string {
	types, labels := map[string]string{}, map[string]map[string]bool{}
	sample := regexp.MustCompile(`^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? `)
	label := regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
	part := regexp.MustCompile(`_(bucket|sum|count)$`)
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 4 && fields[0] == "#" && fields[1] == "TYPE" {
			types[fields[2]], labels[fields[2]] = fields[3], map[string]bool{}
			continue
		}
		match := sample.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		name := match[1]
		if types[name] == "" {
			name = part.ReplaceAllString(name, "")
		}
		for _, l := range label.FindAllStringSubmatch(match[2], -1) {
			if l[1] != "le" && labels[name] != nil {
				labels[name][l[1]] = true
			}
		}
	}
	names := map[string]string{}
	for name, kind := range types {
		names[name] = fmt.Sprintf("%s of %s", kind, strings.Join(sortedKeys(labels[name]), ","))
	}
	return names
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
