package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/nfs-csi/nfs-csi/test/integration/cluster"
)

// plugin is a world whose driver is nfsplugin.
type plugin struct {
	*world
	// export is the server's directory, here.
	export  string
	process *cluster.Process
}

func newPlugin(t *testing.T) *plugin {
	t.Helper()
	w := build(t)
	if os.Getenv(pluginEnv) == "" {
		t.Skipf("needs %s", pluginEnv)
	}
	w.driverName = w.name
	t.Parallel()
	p := &plugin{world: w, export: filepath.Join(w.dir, "export")}
	if err := os.Mkdir(p.export, 0o755); err != nil {
		t.Fatal(err)
	}
	p.startPlugin()
	w.prepare(p.class(nil))
	return p
}

func (p *plugin) class(parameters map[string]string) func(*storagev1.StorageClass) {
	return func(class *storagev1.StorageClass) {
		class.Parameters = map[string]string{"server": "nfs.test", "share": "/export"}
		maps.Copy(class.Parameters, parameters)
	}
}

func (p *plugin) startPlugin(flags ...string) {
	p.Helper()
	process, err := cluster.StartProcess(p.dir, "nfsplugin", "/usr/bin/env", append([]string{
		"NFSPLUGIN_FAKE_EXPORTS=nfs.test:/export=" + p.export, os.Getenv(pluginEnv),
		"--mode=controller", "--driver-name=" + p.driverName, "--endpoint=unix://" + p.socket(),
		"--working-mount-dir=" + filepath.Join(p.dir, "mounts"), "-v=4",
	}, flags...)...)
	if err != nil {
		p.Fatal(err)
	}
	p.process = process
	p.Cleanup(func() {
		if err := process.Kill(); err != nil {
			p.Error(err)
		}
		if p.Failed() {
			p.Log(process.Tail())
		}
	})
}

func (p *plugin) of(class string) func(*corev1.PersistentVolumeClaim) {
	return func(claim *corev1.PersistentVolumeClaim) { claim.Spec.StorageClassName = &class }
}

// record is what the export says of a directory, nil for nothing.
func (p *plugin) record(subDir string) map[string]any {
	p.Helper()
	text, err := os.ReadFile(filepath.Join(p.export, ".nfs-csi", "volumes", subDir, ".record.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	record := map[string]any{}
	if err := errors.Join(err, json.Unmarshal(text, &record)); err != nil {
		p.Fatal(err)
	}
	return record
}

// left are the directories that pods could see, and records.
func (p *plugin) left() (directories, records []string) {
	p.Helper()
	for dir, names := range map[string]*[]string{p.export: &directories, filepath.Join(p.export, ".nfs-csi", "volumes"): &records} {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.Fatal(err)
		}
		for _, entry := range entries {
			if entry.Name() != ".nfs-csi" {
				*names = append(*names, entry.Name())
			}
		}
	}
	return directories, records
}

func (p *plugin) write(path, text string) {
	p.Helper()
	if err := os.WriteFile(filepath.Join(p.export, path), []byte(text), 0o600); err != nil {
		p.Fatal(err)
	}
}

func (p *plugin) mustRead(path, want string) {
	p.Helper()
	if text, err := os.ReadFile(filepath.Join(p.export, path)); err != nil || string(text) != want {
		p.Errorf("%s has %q, %v; want %q", path, text, err, want)
	}
}

func TestPluginLifecycle(t *testing.T) {
	p := newPlugin(t)
	p.start("--extra-create-metadata")
	claim := p.createClaim("data")
	volume := p.awaitBound("data")
	name := "pvc-" + string(claim.UID)

	source := volume.Spec.CSI
	if source.Driver != p.driverName || source.VolumeHandle != "nfs.test#export#"+name+"##delete" {
		t.Errorf("driver %s, handle %q", source.Driver, source.VolumeHandle)
	}
	want := map[string]string{
		"server": "nfs.test", "share": "/export", "subdir": name, "csi.storage.k8s.io/pv/name": name,
		"csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": claim.Namespace,
	}
	got := maps.Clone(source.VolumeAttributes)
	delete(got, "storage.kubernetes.io/csiProvisionerIdentity")
	if !maps.Equal(got, want) {
		t.Errorf("attributes are %v, want %v", got, want)
	}
	if size := volume.Spec.Capacity[corev1.ResourceStorage]; size.String() != "1Gi" || !slices.Equal(volume.Spec.MountOptions, []string{"hard"}) {
		t.Errorf("capacity %s, mount options %v", size.String(), volume.Spec.MountOptions)
	}
	if info, err := os.Stat(filepath.Join(p.export, name)); err != nil || info.Mode() != fs.ModeDir|0o777 {
		t.Errorf("the directory is %v, %v", info, err)
	}
	record := p.record(name)
	metadata, _ := record["metadata"].(map[string]any)
	if record["id"] != source.VolumeHandle || record["capacity"] != float64(1<<30) || metadata["csi.storage.k8s.io/pvc/name"] != "data" {
		t.Errorf("the record is %v", record)
	}

	p.write(name+"/file", "x")
	p.deleteClaim("data")
	p.awaitVolumeGone(name)
	if directories, records := p.left(); len(directories)+len(records) > 0 {
		t.Errorf("left are %v and records %v", directories, records)
	}
}

func TestPluginRefusesItsClass(t *testing.T) {
	p := newPlugin(t)
	p.createClass(p.name+"-typo", p.class(map[string]string{"sever": "nfs.test"}))
	p.createClass(p.name+"-elsewhere", p.class(map[string]string{"share": "/other"}))
	p.createClass(p.name+"-upwards", p.class(map[string]string{"subDir": "../${pvc.metadata.name}"}))
	p.start("--extra-create-metadata")
	for class, want := range map[string]string{
		"typo":      `InvalidArgument: `,
		"elsewhere": `NFS share not found`,
		"upwards":   `InvalidArgument: `,
	} {
		p.createClaim(class, p.of(p.name+"-"+class))
		p.awaitEvent(class, "ProvisioningFailed", want)
	}
	p.awaitEvent("typo", "ProvisioningFailed", `sever`)
	// What is wrong with those is nothing to others.
	p.createClaim("data")
	volume := p.awaitBound("data")
	if directories, records := p.left(); !slices.Equal(directories, []string{volume.Name}) || !slices.Equal(records, []string{volume.Name}) {
		t.Errorf("there are %v and records %v", directories, records)
	}
}

func TestPluginOnDelete(t *testing.T) {
	p := newPlugin(t)
	for _, policy := range []string{"archive", "retain"} {
		p.createClass(p.name+"-"+policy, p.class(map[string]string{"onDelete": policy, "subDir": "${pvc.metadata.namespace}/${pvc.metadata.name}"}))
	}
	p.start("--extra-create-metadata")
	for _, policy := range []string{"archive", "retain"} {
		p.createClaim(policy, p.of(p.name+"-"+policy))
		volume := p.awaitBound(policy)
		p.write(filepath.Join(p.name, policy, "file"), policy)
		p.deleteClaim(policy)
		p.awaitVolumeGone(volume.Name)
	}
	p.mustRead(p.name+"/archived-archive/file", "archive")
	p.mustRead(p.name+"/retain/file", "retain")
	if p.record(p.name+"/retain") != nil || p.record(p.name+"/archive") != nil || p.record(p.name+"/archived-archive") != nil {
		t.Error("a directory that was left still has an owner")
	}
	// A retained directory is the next claim's of that name.
	p.createClaim("retain", p.of(p.name+"-retain"))
	p.awaitBound("retain")
	p.mustRead(p.name+"/retain/file", "retain")
}

// A directory that was there before its claim is somebody's data.
func TestPluginAdoptsAndAPolicyRefuses(t *testing.T) {
	p := newPlugin(t)
	p.createClass(p.name+"-adopts", p.class(map[string]string{"subDir": "${pvc.metadata.name}"}))
	if err := os.Mkdir(filepath.Join(p.export, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.write("data/file", "theirs")
	refusing := p.refuseVolumes()
	p.start("--extra-create-metadata", "--retry-interval-max=200ms")
	p.createClaim("data", p.of(p.name+"-adopts"))
	p.awaitEvent("data", "ProvisioningFailed", refused)
	refusing.awaitRefusals(3)
	p.mustRead("data/file", "theirs")
	refusing.allow()
	p.awaitBound("data")
	p.mustRead("data/file", "theirs")
}

func TestPluginClone(t *testing.T) {
	p := newPlugin(t)
	p.start()
	p.createClaim("source")
	source := p.awaitBound("source")
	p.write(source.Name+"/file", "one")
	p.createClaim("clone", fromClaim("source"))
	clone := p.awaitBound("clone")
	p.mustRead(clone.Name+"/file", "one")
	p.write(clone.Name+"/file", "two")
	p.mustRead(source.Name+"/file", "one")
	if got, _ := p.record(clone.Name)["source"].(string); !strings.Contains(got, source.Name) {
		t.Errorf("the record says it was made from %q", got)
	}
	p.deleteClaim("source")
	p.awaitVolumeGone(source.Name)
	p.mustRead(clone.Name+"/file", "two")
}

// Every claim has its own directory in the end, and none is left that has no claim.
func TestPluginKilled(t *testing.T) {
	p := newPlugin(t)
	p.start("--timeout=2s", "--retry-interval-max=200ms")
	const claims, kills = 40, 3
	for i := range claims {
		p.createClaim(fmt.Sprintf("claim-%d", i))
		if i%(claims/kills) == claims/kills/2 {
			if err := p.process.Kill(); err != nil {
				t.Fatal(err)
			}
			p.startPlugin()
		}
	}
	var want, gone []string
	for i := range claims {
		volume := p.awaitBound(fmt.Sprintf("claim-%d", i))
		if i%2 == 0 {
			want = append(want, volume.Name)
			continue
		}
		p.deleteClaim(fmt.Sprintf("claim-%d", i))
		gone = append(gone, volume.Name)
	}
	if err := p.process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.startPlugin()
	for _, name := range gone {
		p.awaitVolumeGone(name)
	}
	slices.Sort(want)
	if directories, records := p.left(); !slices.Equal(directories, want) || !slices.Equal(records, want) {
		t.Errorf("there are %v and records %v, want %v", directories, records, want)
	}
}

// No call for a volume is made after a restart: what is left of deleted volumes goes
// nevertheless.
func TestPluginReclaimsAfterARestart(t *testing.T) {
	for name, both := range map[string]bool{"driver": false, "both": true} {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t)
			if err := p.process.Kill(); err != nil {
				t.Fatal(err)
			}
			p.startPlugin("--reclaim-rate=1")
			replica := p.start("--announce-classes")
			p.createClaim("data")
			volume := p.awaitBound("data")
			for i := range 100 {
				p.write(fmt.Sprintf("%s/%d", volume.Name, i), "x")
			}
			p.deleteClaim("data")
			p.awaitVolumeGone(volume.Name)
			if both {
				if err := replica.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.process.Kill(); err != nil {
				t.Fatal(err)
			}
			if trash := p.trash(); len(trash) != 1 {
				t.Fatalf("in the trash are %v, want the volume", trash)
			}
			p.startPlugin()
			if both {
				p.start("--announce-classes")
			}
			p.eventually("the trash is empty", func() error {
				if trash := p.trash(); len(trash) != 0 {
					return fmt.Errorf("there are %v", trash)
				}
				return nil
			})
		})
	}
}

// trash has what is left of deleted volumes.
func (p *plugin) trash() (names []string) {
	p.Helper()
	entries, err := os.ReadDir(filepath.Join(p.export, ".nfs-csi", "trash"))
	if err != nil {
		p.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
