package capacity

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metadatafake "k8s.io/client-go/metadata/fake"
)

func TestOwner(t *testing.T) {
	controller := func(version, kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, UID: types.UID("uid-of-" + name), Controller: new(true)}}
	}
	partial := func(version, kind, name string, owners []metav1.OwnerReference) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: kind},
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-of-" + name), OwnerReferences: owners},
		}
	}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := metadatafake.NewSimpleMetadataClient(scheme,
		partial("v1", "Pod", "pod", controller("apps/v1", "ReplicaSet", "set")),
		partial("apps/v1", "ReplicaSet", "set", controller("apps/v1", "Deployment", "deployment")),
		partial("apps/v1", "Deployment", "deployment", controller("example.com/v1", "Driver", "driver")),
		partial("example.com/v1", "Driver", "driver", nil))
	reads := func() int { return len(client.Actions()) }
	for level, want := range []string{"v1/Pod/pod", "apps/v1/ReplicaSet/set", "apps/v1/Deployment/deployment", "example.com/v1/Driver/driver"} {
		before := reads()
		owners, err := Owner(t.Context(), client, "ns", "pod", level)
		if err != nil {
			t.Fatal(err)
		}
		if got := owners[0].APIVersion + "/" + owners[0].Kind + "/" + owners[0].Name; got != want || owners[0].UID != types.UID("uid-of-"+owners[0].Name) {
			t.Errorf("level %d: %v, want %s", level, owners, want)
		}
		// The permission to read the owner is not needed.
		if got, want := reads()-before, max(1, level); got != want {
			t.Errorf("level %d: %d objects were read, want %d", level, got, want)
		}
	}
	if owners, err := Owner(t.Context(), client, "ns", "pod", NoOwner); owners != nil || err != nil {
		t.Errorf("no level: %v, %v", owners, err)
	}
	if _, err := Owner(t.Context(), client, "ns", "pod", 4); err == nil {
		t.Error("nothing is above the driver's own")
	}
}
