package sbom_test

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdxlib"

	"github.com/nfs-csi/nfs-csi/hack/internal/sbom"
)

const digest = "1111111111111111111111111111111111111111111111111111111111111111"

// program is one that has modules, which a test binary does not record.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sbom-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "app")
	if out, err := exec.Command("go", "build", "-o", program, "../../images").CombinedOutput(); err != nil {
		panic(string(out))
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func image(t *testing.T) sbom.Image {
	t.Helper()
	return sbom.Image{
		Name: "app", Version: "v1.2.3", License: "Apache-2.0", Source: "https://example.com/app",
		Digest:  "sha256:" + digest,
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600)),
		Programs: []sbom.Program{
			{Platform: "linux/amd64", Path: program},
			{Platform: "linux/arm64", Path: program},
		},
	}
}

func written(t *testing.T, image sbom.Image) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "app.spdx.json")
	if err := sbom.WriteFile(file, image); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// A third-party reader accepts the document, and finds all modules of the program.
func TestModules(t *testing.T) {
	i := image(t)
	doc, err := spdxjson.Read(bytes.NewReader(written(t, i)))
	if err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(doc); err != nil {
		t.Error(err)
	}
	info, err := buildinfo.ReadFile(i.Programs[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"stdlib " + strings.TrimPrefix(info.GoVersion, "go"): ""}
	for _, module := range info.Deps {
		want[module.Path+" "+module.Version] = "go.sum: " + module.Sum
	}
	if len(want) < 3 {
		t.Fatalf("the test has only the modules %v", want)
	}
	got := map[string]string{}
	for _, pkg := range doc.Packages {
		if pkg.PrimaryPackagePurpose == "LIBRARY" {
			got[pkg.PackageName+" "+pkg.PackageVersion] = pkg.PackageSourceInfo
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("modules differ (-want +got):\n%s", diff)
	}
	checkRelationships(t, doc, len(want))
}

func checkRelationships(t *testing.T, doc *spdx.Document, modules int) {
	t.Helper()
	count := map[string]int{}
	for _, r := range doc.Relationships {
		count[string(r.RefA.ElementRefID)+" "+r.Relationship]++
	}
	want := map[string]int{
		"DOCUMENT DESCRIBES":             1,
		"Image CONTAINS":                 2,
		"Program-linux-amd64 DEPENDS_ON": modules,
		"Program-linux-arm64 DEPENDS_ON": modules,
	}
	if diff := cmp.Diff(want, count); diff != "" {
		t.Errorf("relationships differ (-want +got):\n%s", diff)
	}
}

// The fields that SPDX 2.3 requires, in the form that it requires
// (https://spdx.github.io/spdx-spec/v2.3/document-creation-information/ and
// https://spdx.github.io/spdx-spec/v2.3/package-information/).
func TestRequiredFields(t *testing.T) {
	var doc map[string]any
	if err := json.Unmarshal(written(t, image(t)), &doc); err != nil {
		t.Fatal(err)
	}
	matches(t, "document", doc, map[string]string{
		"spdxVersion":       `^SPDX-2\.3$`,
		"dataLicense":       `^CC0-1\.0$`,
		"SPDXID":            `^SPDXRef-DOCUMENT$`,
		"name":              `^app-v1\.2\.3$`,
		"documentNamespace": `^https://example\.com/app/sbom/app-` + digest + `$`,
	})
	creation, _ := doc["creationInfo"].(map[string]any)
	matches(t, "creationInfo", creation, map[string]string{"created": `^2026-01-02T02:04:05Z$`})
	creators, _ := creation["creators"].([]any)
	for _, creator := range creators {
		if s, _ := creator.(string); !regexp.MustCompile(`^(Tool|Organization|Person): .+$`).MatchString(s) {
			t.Errorf("creator %q", creator)
		}
	}
	packages, _ := doc["packages"].([]any)
	if len(creators) == 0 || len(packages) == 0 {
		t.Fatalf("%d creators, %d packages", len(creators), len(packages))
	}
	var ids []string
	for _, p := range packages {
		pkg, _ := p.(map[string]any)
		id, _ := pkg["SPDXID"].(string)
		matches(t, id, pkg, map[string]string{
			"SPDXID":           `^SPDXRef-[A-Za-z0-9.-]+$`,
			"name":             `.`,
			"versionInfo":      `.`,
			"downloadLocation": `^(NOASSERTION|https://.+)$`,
		})
		// Packages without a list of files must say so.
		if pkg["filesAnalyzed"] != false {
			t.Errorf("%s: filesAnalyzed = %v", id, pkg["filesAnalyzed"])
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if unique := slices.Compact(slices.Clone(ids)); len(unique) != len(ids) {
		t.Errorf("an ID is given twice: %v", ids)
	}
}

func matches(t *testing.T, what string, object map[string]any, fields map[string]string) {
	t.Helper()
	for field, pattern := range fields {
		if value, _ := object[field].(string); !regexp.MustCompile(pattern).MatchString(value) {
			t.Errorf("%s: %s = %q, want %s", what, field, object[field], pattern)
		}
	}
}

func TestReproducible(t *testing.T) {
	i := image(t)
	if first, second := written(t, i), written(t, i); !bytes.Equal(first, second) {
		t.Error("the same image gave another document")
	}
}

func TestRefused(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	valid := image(t)
	for name, change := range map[string]func(*sbom.Image){
		"not built by Go":   func(i *sbom.Image) { i.Programs[0].Path = text },
		"no such program":   func(i *sbom.Image) { i.Programs[0].Path += ".missing" },
		"no digest":         func(i *sbom.Image) { i.Digest = "" },
		"another algorithm": func(i *sbom.Image) { i.Digest = "sha512:" + digest },
	} {
		t.Run(name, func(t *testing.T) {
			i := valid
			i.Programs = slices.Clone(valid.Programs)
			change(&i)
			file := filepath.Join(t.TempDir(), "app.spdx.json")
			if err := sbom.WriteFile(file, i); err == nil {
				t.Error("no error")
			}
			if _, err := os.Stat(file); err == nil {
				t.Error("a file was left behind")
			}
		})
	}
}
