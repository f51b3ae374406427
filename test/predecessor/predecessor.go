// Package predecessor reads the objects that the programs which this project replaces have
// created, from test/e2e/testdata, and creates what those programs have on an export. It is
// for tests only.
package predecessor

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// How the objects, and docs/migrate.md, name the server and the export.
const (
	Server = "nas.example.com"
	Share  = "/srv/nfs"
)

// Place is an export of a test.
type Place struct {
	Server, Share string
	// Dir is the share on the server's own disk.
	Dir string
}

// Words has the names of server and share in the objects and in this place, in pairs.
func (p Place) Words() []string {
	return []string{Server, p.Server, strings.Trim(Share, "/"), strings.Trim(p.Share, "/")}
}

// Read returns a file of objects, with server and share of this place.
func (p Place) Read(file string) (string, error) {
	text, err := os.ReadFile(file)
	return strings.NewReplacer(p.Words()...).Replace(string(text)), err
}

// Volume is a volume that another program has created for a claim.
type Volume struct {
	Claim string
	// Dir is its directory, relative to the share.
	Dir string
	*corev1.PersistentVolume
}

// Content is that of the file "file" in the volume.
func (v Volume) Content() string { return "data of " + v.Claim + "\n" }

// Volumes returns the PersistentVolumes in a file, and creates their directories, each with a
// file.
func (p Place) Volumes(file string) (all []Volume, err error) {
	text, err := p.Read(file)
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), len(text))
	for {
		var pv corev1.PersistentVolume
		err := decoder.Decode(&pv)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if pv.Kind != "PersistentVolume" {
			continue
		}
		v := Volume{Claim: pv.Spec.ClaimRef.Name, PersistentVolume: &pv}
		if v.Dir, err = p.Directory(&pv); err != nil {
			return nil, err
		}
		at := filepath.Join(p.Dir, v.Dir)
		if err := errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(filepath.Join(at, "file"), []byte(v.Content()), 0o600)); err != nil {
			return nil, err
		}
		all = append(all, v)
	}
}

// Directory is the directory of a volume, relative to the share, as csi-driver-nfs finds it:
// by the attributes server, share and subDir, in upper or lower case.
func (p Place) Directory(pv *corev1.PersistentVolume) (string, error) {
	server, path := "", ""
	switch {
	case pv.Spec.NFS != nil:
		server, path = pv.Spec.NFS.Server, pv.Spec.NFS.Path
	case pv.Spec.CSI != nil:
		attributes := map[string]string{}
		for key, value := range pv.Spec.CSI.VolumeAttributes {
			attributes[strings.ToLower(key)] = value
		}
		server, path = attributes["server"], filepath.Join(attributes["share"], attributes["subdir"])
	}
	dir, err := filepath.Rel(p.Share, path)
	if err != nil || server != p.Server || !filepath.IsLocal(dir) {
		return "", fmt.Errorf("volume %s is %s of %q, which is not on %s of %s", pv.Name, path, server, p.Share, p.Server)
	}
	return dir, nil
}

// Archive writes a snapshot as csi-driver-nfs does, <share>/<snapshot>/<source>.tar.gz, or .tar,
// with a file "file", and returns its ID. The source is the uuid in the volume's ID or, without
// one, its directory.
func (p Place) Archive(snapshot, source, ending, content string) (id string, err error) {
	var packed bytes.Buffer
	var out io.Writer = &packed
	var compressor io.Closer = io.NopCloser(nil)
	if ending == ".tar.gz" {
		z := gzip.NewWriter(&packed)
		out, compressor = z, z
	}
	w, now := tar.NewWriter(out), time.Now()
	err = errors.Join(
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: ".", Mode: 0o755, ModTime: now}),
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "file", Mode: 0o600, ModTime: now, Size: int64(len(content))}))
	if err == nil {
		_, err = io.WriteString(w, content)
	}
	dir := filepath.Join(p.Dir, snapshot)
	err = errors.Join(err, w.Close(), compressor.Close(), os.Mkdir(dir, 0o755))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, source+ending), packed.Bytes(), 0o644)
	}
	return strings.Join([]string{p.Server, strings.Trim(p.Share, "/"), snapshot, snapshot, source}, "#"), err
}
