package plan

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// refusal is why err was refused, empty for nil.
func refusal(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	if !errors.Is(err, ErrSource) {
		t.Errorf("%v does not wrap ErrSource", err)
	}
	return err.Error()
}

func checkRefusal(t *testing.T, err error, says string) {
	t.Helper()
	if got := refusal(t, err); (says == "") != (got == "") || !strings.Contains(got, says) {
		t.Errorf("got %q, want what says %q", got, says)
	}
}

func sourceRef(group, kind, name, namespace string) *corev1.TypedObjectReference {
	ref := &corev1.TypedObjectReference{Kind: kind, Name: name}
	if group != "" {
		ref.APIGroup = &group
	}
	if namespace != "" {
		ref.Namespace = &namespace
	}
	return ref
}

func TestClaimOrigin(t *testing.T) {
	tests := map[string]struct {
		source  *corev1.TypedLocalObjectReference
		ref     *corev1.TypedObjectReference
		want    Origin
		foreign bool
	}{
		"none": {},
		"snapshot": {
			source: &corev1.TypedLocalObjectReference{APIGroup: new(SnapshotGroup), Kind: "VolumeSnapshot", Name: "s"},
			want:   Origin{Kind: SnapshotOrigin, Namespace: "team-a", Name: "s"},
		},
		"claim": {
			ref:  sourceRef("", "PersistentVolumeClaim", "c", ""),
			want: Origin{Kind: ClaimOrigin, Namespace: "team-a", Name: "c"},
		},
		"the reference wins": {
			source: &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "c"},
			ref:    sourceRef("", "PersistentVolumeClaim", "c", "team-b"),
			want:   Origin{Kind: ClaimOrigin, Namespace: "team-b", Name: "c"},
		},
		"populator":         {ref: sourceRef("example.com", "Backup", "b", ""), foreign: true},
		"snapshot of other": {ref: sourceRef("example.com", "VolumeSnapshot", "b", ""), foreign: true},
		"no group":          {ref: sourceRef("", "VolumeSnapshot", "b", ""), foreign: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			origin, foreign := ClaimOriginOf(testClaim(func(claim *corev1.PersistentVolumeClaim) {
				claim.Spec.DataSource, claim.Spec.DataSourceRef = test.source, test.ref
			}))
			if foreign != test.foreign || origin != test.want {
				t.Errorf("got %v, %v, want %v, %v", origin, foreign, test.want, test.foreign)
			}
		})
	}
}

func TestCheckOrigin(t *testing.T) {
	snapshot, clone := Origin{SnapshotOrigin, "team-a", "s"}, Origin{ClaimOrigin, "team-a", "c"}
	tests := map[string]struct {
		origin  Origin
		options Options
		says    string
	}{
		"restore":       {snapshot, Options{Driver: Capabilities{Snapshots: true}}, ""},
		"clone":         {clone, Options{Driver: Capabilities{Clones: true}}, ""},
		"no restore":    {snapshot, Options{Driver: Capabilities{Clones: true}}, "CREATE_DELETE_SNAPSHOT"},
		"no clone":      {clone, Options{Driver: Capabilities{Snapshots: true}}, "CLONE_VOLUME"},
		"of itself":     {Origin{ClaimOrigin, "team-a", "data"}, Options{Driver: Capabilities{Clones: true}}, "itself"},
		"gate is off":   {Origin{ClaimOrigin, "team-b", "c"}, Options{Driver: Capabilities{Clones: true}}, "feature-gates"},
		"gate is on":    {Origin{ClaimOrigin, "team-b", "c"}, Options{Driver: Capabilities{Clones: true}, CrossNamespaceSources: true}, ""},
		"another's own": {Origin{ClaimOrigin, "team-b", "data"}, Options{Driver: Capabilities{Clones: true}, CrossNamespaceSources: true}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			checkRefusal(t, CheckOrigin(test.origin, testClaim(), test.options), test.says)
		})
	}
}

func TestCloneContent(t *testing.T) {
	tests := map[string]struct {
		source func(*corev1.PersistentVolumeClaim)
		volume func(*corev1.PersistentVolume) *corev1.PersistentVolume
		says   string
	}{
		"ready":     {},
		"deleted":   {source: func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = new(metav1.Now()) }, says: "deleted"},
		"not bound": {source: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }, says: "not bound"},
		"lost":      {source: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }, says: "not bound"},
		"block":     {source: block, says: "block"},
		"larger": {source: func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
		}, says: "2147483648"},
		"no volume":  {volume: func(*corev1.PersistentVolume) *corev1.PersistentVolume { return nil }, says: "does not exist"},
		"no handle":  {volume: volumeChange(func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "" }), says: "handle"},
		"driver":     {volume: volumeChange(func(v *corev1.PersistentVolume) { v.Spec.CSI.Driver = "other" }), says: "not one of CSI driver"},
		"no CSI":     {volume: volumeChange(func(v *corev1.PersistentVolume) { v.Spec.CSI = nil }), says: "not one of CSI driver"},
		"another's":  {volume: volumeChange(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "9" }), says: "another claim"},
		"unclaimed":  {volume: volumeChange(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }), says: "another claim"},
		"unchanged ": {volume: volumeChange(func(*corev1.PersistentVolume) {})},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			source := testClaim(func(c *corev1.PersistentVolumeClaim) {
				c.Name, c.UID, c.Spec.VolumeName, c.Status.Phase = "source", "2", "pvc-2", corev1.ClaimBound
			})
			if test.source != nil {
				test.source(source)
			}
			volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
				ClaimRef: &corev1.ObjectReference{UID: "2"},
				PersistentVolumeSource: corev1.PersistentVolumeSource{
					CSI: &corev1.CSIPersistentVolumeSource{Driver: "nfs.example", VolumeHandle: "handle"},
				},
			}}
			if test.volume != nil {
				volume = test.volume(volume)
			}
			content, err := CloneContent(testClaim(), source, volume, "nfs.example")
			checkRefusal(t, err, test.says)
			if err == nil && content.GetVolume().GetVolumeId() != "handle" {
				t.Errorf("content is %v", content)
			}
		})
	}
}

func volumeChange(change func(*corev1.PersistentVolume)) func(*corev1.PersistentVolume) *corev1.PersistentVolume {
	return func(volume *corev1.PersistentVolume) *corev1.PersistentVolume {
		change(volume)
		return volume
	}
}

func TestRestoreContent(t *testing.T) {
	tests := map[string]struct {
		claim    func(*corev1.PersistentVolumeClaim)
		snapshot func(*Snapshot)
		content  func(*SnapshotContent)
		allow    bool // --prevent-volume-mode-conversion=false
		says     string
	}{
		"ready":        {},
		"deleted":      {snapshot: func(s *Snapshot) { s.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, says: "being deleted"},
		"not bound":    {snapshot: func(s *Snapshot) { s.Status.BoundVolumeSnapshotContentName = "" }, says: "not bound"},
		"no status":    {snapshot: func(s *Snapshot) { s.Status = SnapshotStatus{} }, says: "not bound"},
		"not ready":    {snapshot: func(s *Snapshot) { s.Status.ReadyToUse = false }, says: "not ready"},
		"too large":    {snapshot: func(s *Snapshot) { s.Status.RestoreSize = new(resource.MustParse("2Gi")) }, says: "2147483648"},
		"size unknown": {snapshot: func(s *Snapshot) { s.Status.RestoreSize = nil }},
		"another's":    {content: func(c *SnapshotContent) { c.Spec.VolumeSnapshotRef.UID = "other" }, says: "another snapshot"},
		"namespace":    {content: func(c *SnapshotContent) { c.Spec.VolumeSnapshotRef.Namespace = "other" }, says: "another snapshot"},
		"driver":       {content: func(c *SnapshotContent) { c.Spec.Driver = "other" }, says: "belongs to CSI driver other"},
		"no handle":    {content: func(c *SnapshotContent) { c.Status.SnapshotHandle = "" }, says: "no snapshot handle"},
		"other mode":   {claim: block, says: "volume mode is Filesystem"},
		"other mode, allowed there": {claim: block, content: func(c *SnapshotContent) {
			c.Annotations = map[string]string{allowModeChange: "true"}
		}},
		"other mode, allowed with 1": {claim: block, content: func(c *SnapshotContent) { c.Annotations = map[string]string{allowModeChange: "1"} }},
		"other mode, capital True":   {claim: block, content: func(c *SnapshotContent) { c.Annotations = map[string]string{allowModeChange: "True"} }},
		"other mode, false": {
			claim: block, content: func(c *SnapshotContent) { c.Annotations = map[string]string{allowModeChange: "0"} }, says: "volume mode is Filesystem",
		},
		"other mode, no boolean": {
			claim: block, content: func(c *SnapshotContent) { c.Annotations = map[string]string{allowModeChange: "yes"} }, says: "volume mode is Filesystem",
		},
		"other mode, allowed here":  {claim: block, allow: true},
		"other mode, not said":      {claim: block, content: func(c *SnapshotContent) { c.Spec.SourceVolumeMode = "" }},
		"same mode, not even asked": {content: func(c *SnapshotContent) { c.Annotations = map[string]string{allowModeChange: "false"} }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			claim := testClaim()
			snapshot := &Snapshot{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "s", UID: "5"},
				Status: SnapshotStatus{
					BoundVolumeSnapshotContentName: "content", ReadyToUse: true, RestoreSize: new(resource.MustParse("1Gi")),
				},
			}
			content := &SnapshotContent{
				Spec: SnapshotContentSpec{
					Driver: "nfs.example", SourceVolumeMode: corev1.PersistentVolumeFilesystem,
					VolumeSnapshotRef: SnapshotReference{Namespace: "team-a", Name: "s", UID: "5"},
				},
				Status: SnapshotContentStatus{SnapshotHandle: "handle"},
			}
			apply(test.claim, claim)
			apply(test.snapshot, snapshot)
			apply(test.content, content)
			err := CheckSnapshot(snapshot)
			if err == nil {
				options := testOptions()
				options.PreventModeConversion = !test.allow
				got, restoreErr := RestoreContent(claim, snapshot, content, options)
				if err = restoreErr; err == nil && got.GetSnapshot().GetSnapshotId() != "handle" {
					t.Errorf("content is %v", got)
				}
			}
			checkRefusal(t, err, test.says)
		})
	}
}

func apply[T any](change func(*T), to *T) {
	if change != nil {
		change(to)
	}
}

func TestGrants(t *testing.T) {
	origin := Origin{SnapshotOrigin, "team-b", "monday"}
	from := GrantFrom{Kind: "PersistentVolumeClaim", Namespace: "team-a"}
	to := GrantTo{Group: SnapshotGroup, Kind: "VolumeSnapshot"}
	tests := map[string]struct {
		grant   Grant
		allowed bool
	}{
		"all":             {Grant{GrantSpec{[]GrantFrom{from}, []GrantTo{to}}}, true},
		"this one":        {Grant{GrantSpec{[]GrantFrom{from}, []GrantTo{{SnapshotGroup, "VolumeSnapshot", "monday"}}}}, true},
		"another one":     {Grant{GrantSpec{[]GrantFrom{from}, []GrantTo{{SnapshotGroup, "VolumeSnapshot", "tuesday"}}}}, false},
		"second of each":  {Grant{GrantSpec{[]GrantFrom{{}, from}, []GrantTo{{}, to}}}, true},
		"another's":       {Grant{GrantSpec{[]GrantFrom{{Kind: "PersistentVolumeClaim", Namespace: "team-c"}}, []GrantTo{to}}}, false},
		"no claims":       {Grant{GrantSpec{[]GrantFrom{{Group: "x", Kind: "PersistentVolumeClaim", Namespace: "team-a"}}, []GrantTo{to}}}, false},
		"claims only":     {Grant{GrantSpec{[]GrantFrom{from}, []GrantTo{{Kind: "PersistentVolumeClaim"}}}}, false},
		"another API's":   {Grant{GrantSpec{[]GrantFrom{from}, []GrantTo{{"example.com", "VolumeSnapshot", ""}}}}, false},
		"nothing granted": {Grant{}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			says := "no ReferenceGrant"
			if test.allowed {
				says = ""
			}
			checkRefusal(t, CheckGrants(origin, testClaim(), []Grant{{}, test.grant}), says)
		})
	}
	half := []Grant{{GrantSpec{From: []GrantFrom{from}}}, {GrantSpec{To: []GrantTo{to}}}}
	checkRefusal(t, CheckGrants(origin, testClaim(), half), "no ReferenceGrant")
}

func TestModify(t *testing.T) {
	creation, err := NewCreation(testOptions(), testClaim(), testClass(map[string]string{"server": "a"}), "pvc-1")
	if err != nil {
		t.Fatal(err)
	}
	class := &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gold"}, DriverName: "other", Parameters: map[string]string{"mode": "0700"},
	}
	if err := creation.Modify(class); !errors.Is(err, ErrClaim) || creation.Request.MutableParameters != nil {
		t.Errorf("Modify() = %v for another driver's class", err)
	}
	class.DriverName = "nfs.example"
	if err := creation.Modify(class); err != nil {
		t.Fatal(err)
	}
	if creation.Request.MutableParameters["mode"] != "0700" || *creation.Template.Spec.VolumeAttributesClassName != "gold" {
		t.Errorf("got %v, %v", creation.Request.MutableParameters, creation.Template.Spec.VolumeAttributesClassName)
	}
	modify := Capabilities{Modify: true}
	for says, options := range map[string]Options{"feature-gates": {Driver: modify}, "MODIFY_VOLUME": {AttributesClasses: true}} {
		if err := CheckAttributes("gold", options); !errors.Is(err, ErrClaim) || !strings.Contains(err.Error(), says) {
			t.Errorf("CheckAttributes() = %v, want what says %q", err, says)
		}
	}
	if err := CheckAttributes("gold", Options{Driver: modify, AttributesClasses: true}); err != nil {
		t.Error(err)
	}
}
