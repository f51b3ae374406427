// Package sbom describes an image in SPDX 2.3 (https://spdx.github.io/spdx-spec/v2.3/).
// The modules are those that the Go linker recorded in the programs (debug/buildinfo). The
// same image always gives the same document.
package sbom

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// Image is an image of a Go program.
type Image struct {
	Name, Version, License string
	// Source is the URL of the project.
	Source string
	// Digest of the image index, such as sha256:12ab...
	Digest string
	// Created is the time in the document: that of the commit, not of the build.
	Created time.Time
	// Programs of the image, one for each platform.
	Programs []Program
}

// Program is an executable file built by Go.
type Program struct {
	Platform, Path string
}

const (
	noAssertion = "NOASSERTION"
	documentID  = common.ElementID("DOCUMENT")
	imageID     = common.ElementID("Image")
)

// WriteFile writes the document to path, and replaces an existing file.
func WriteFile(path string, image Image) error {
	doc, err := document(image)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // gone after the rename
	err = write(tmp, doc)
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Chmod(tmp.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

func write(w io.Writer, doc *spdx.Document) error {
	return json.Write(doc, w, json.Indent("  "), json.EscapeHTML(false))
}

func document(image Image) (*spdx.Document, error) {
	algorithm, digest, ok := strings.Cut(image.Digest, ":")
	if !ok || algorithm != "sha256" {
		return nil, fmt.Errorf("digest %q of the image: want sha256:HEX", image.Digest)
	}
	doc := &spdx.Document{
		SPDXVersion:       spdx.Version,
		DataLicense:       spdx.DataLicense,
		SPDXIdentifier:    documentID,
		DocumentName:      image.Name + "-" + image.Version,
		DocumentNamespace: fmt.Sprintf("%s/sbom/%s-%s", image.Source, image.Name, digest),
		CreationInfo: &spdx.CreationInfo{
			Created:  image.Created.UTC().Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Organization", Creator: "nfs-csi"}, {CreatorType: "Tool", Creator: "nfs-csi-images"}},
		},
		Packages: []*spdx.Package{image.pkg(digest)},
	}
	relate(doc, documentID, common.TypeRelationshipDescribe, imageID)
	modules := map[common.ElementID]*spdx.Package{}
	for _, program := range image.Programs {
		if err := addProgram(doc, image, program, modules); err != nil {
			return nil, fmt.Errorf("%s: %w", program.Path, err)
		}
	}
	sorted := make([]*spdx.Package, 0, len(modules))
	for _, module := range modules {
		sorted = append(sorted, module)
	}
	slices.SortFunc(sorted, func(a, b *spdx.Package) int {
		return cmp.Compare(a.PackageSPDXIdentifier, b.PackageSPDXIdentifier)
	})
	doc.Packages = append(doc.Packages, sorted...)
	return doc, nil
}

func (i Image) pkg(digest string) *spdx.Package {
	return &spdx.Package{
		PackageSPDXIdentifier:   imageID,
		PackageName:             i.Name,
		PackageVersion:          i.Version,
		PackageDownloadLocation: i.Source,
		PackageChecksums:        []common.Checksum{{Algorithm: common.SHA256, Value: digest}},
		PackageLicenseConcluded: i.License,
		PackageLicenseDeclared:  i.License,
		PackageCopyrightText:    noAssertion,
		PrimaryPackagePurpose:   "CONTAINER",
		PackageExternalReferences: purl(
			fmt.Sprintf("pkg:oci/%s@sha256%%3A%s", i.Name, digest)),
	}
}

// addProgram adds the program, and its modules to those of the other programs.
func addProgram(doc *spdx.Document, image Image, program Program, modules map[common.ElementID]*spdx.Package) error {
	info, err := buildinfo.ReadFile(program.Path)
	if err != nil {
		return err
	}
	sum, err := checksum(program.Path)
	if err != nil {
		return err
	}
	id := elementID("Program", program.Platform)
	doc.Packages = append(doc.Packages, &spdx.Package{
		PackageSPDXIdentifier:   id,
		PackageName:             info.Path,
		PackageVersion:          image.Version,
		PackageFileName:         "/" + filepath.Base(program.Path),
		PackageDownloadLocation: image.Source,
		PackageChecksums:        []common.Checksum{sum},
		PackageLicenseConcluded: image.License,
		PackageLicenseDeclared:  image.License,
		PackageCopyrightText:    noAssertion,
		PackageComment:          "for " + program.Platform,
		PrimaryPackagePurpose:   "APPLICATION",
	})
	relate(doc, imageID, common.TypeRelationshipContains, id)
	standard := &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}
	for _, module := range append([]*debug.Module{standard}, info.Deps...) {
		if module.Replace != nil {
			module = module.Replace
		}
		pkg := modulePackage(module)
		modules[pkg.PackageSPDXIdentifier] = pkg
		relate(doc, id, common.TypeRelationshipDependsOn, pkg.PackageSPDXIdentifier)
	}
	return nil
}

func modulePackage(module *debug.Module) *spdx.Package {
	pkg := &spdx.Package{
		PackageSPDXIdentifier:     elementID("Module", module.Path, module.Version),
		PackageName:               module.Path,
		PackageVersion:            module.Version,
		PackageDownloadLocation:   noAssertion,
		PackageLicenseConcluded:   noAssertion,
		PackageLicenseDeclared:    noAssertion,
		PackageCopyrightText:      noAssertion,
		PrimaryPackagePurpose:     "LIBRARY",
		PackageExternalReferences: purl("pkg:golang/" + module.Path + "@" + strings.ReplaceAll(module.Version, "+", "%2B")),
	}
	// A hash over the files of the module, not over an archive that can be downloaded, so
	// it is not a checksum in the sense of SPDX.
	if module.Sum != "" {
		pkg.PackageSourceInfo = "go.sum: " + module.Sum
	}
	return pkg
}

// elementID joins the parts, with "-" for what the ID of an element cannot have.
func elementID(parts ...string) common.ElementID {
	return common.ElementID(regexp.MustCompile(`[^A-Za-z0-9.-]`).ReplaceAllString(strings.Join(parts, "-"), "-"))
}

func purl(locator string) []*spdx.PackageExternalReference {
	return []*spdx.PackageExternalReference{{
		Category: common.CategoryPackageManager,
		RefType:  common.TypePackageManagerPURL,
		Locator:  locator,
	}}
}

func relate(doc *spdx.Document, from common.ElementID, relationship string, to common.ElementID) {
	doc.Relationships = append(doc.Relationships, &spdx.Relationship{
		RefA:         common.DocElementID{ElementRefID: from},
		Relationship: relationship,
		RefB:         common.DocElementID{ElementRefID: to},
	})
}

func checksum(path string) (common.Checksum, error) {
	f, err := os.Open(path)
	if err != nil {
		return common.Checksum{}, err
	}
	defer f.Close() //nolint:errcheck // only read from
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return common.Checksum{}, err
	}
	return common.Checksum{Algorithm: common.SHA256, Value: hex.EncodeToString(sum.Sum(nil))}, nil
}
