package manifests_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
)

const examples = "../../deploy/examples"

// TestExamples: each file of deploy/examples has only fields that Kubernetes knows, names this
// driver and no other, and is listed in the README there.
func TestExamples(t *testing.T) {
	known := runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(known))
	utilruntime.Must(snapshotv1.AddToScheme(known))
	decoder := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
	readme, err := os.ReadFile(filepath.Join(examples, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	if err != nil || len(files) < 10 {
		t.Fatalf("examples %v, %v", files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if !strings.Contains(string(readme), "["+name+"]("+name+")") {
			t.Errorf("%s is not in the README", name)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		checkDriver(t, name, string(content))
		documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if _, _, err := decoder.Decode(document, nil, nil); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func checkDriver(t *testing.T, name, content string) {
	t.Helper()
	for line := range strings.Lines(content) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "provisioner", "driver", "driverName":
			if value != "nfs.csi.internal" {
				t.Errorf("%s: %s %q", name, key, value)
			}
		}
	}
}
