package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a fake machine for the preflight: programs, each a line of shell, and files.
// An empty program does not exist.
type machine struct {
	programs, files map[string]string
	env             []string
	script          string
}

// able is a machine that meets all requirements.
func able() machine {
	return machine{
		script: filepath.Join(hack, "preflight"),
		programs: map[string]string{
			"id": "echo 0", "uname": `case $1 in -m) echo x86_64 ;; -r) echo 5.12.0-1-amd64 ;; esac`,
			"unshare": "true", "perl": "true", "git": "true", "make": "true", "apt-get": "true", "dpkg-query": "true",
			"go": `printf '%s\n' go1.26.0 local`,
			"df": `echo Avail Mounted on; echo 104857600 /`,
		},
		files: map[string]string{
			"etc/os-release": "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n",
			"proc/meminfo":   "MemTotal: 8388608 kB\nMemAvailable: 8388608 kB\n",
		},
	}
}

func (m machine) preflight(t *testing.T, level string) (output string, code int) {
	t.Helper()
	dir := t.TempDir()
	bin, root, home := filepath.Join(dir, "bin"), filepath.Join(dir, "root"), filepath.Join(dir, "home")
	for name, body := range m.programs {
		if body != "" {
			writeFile(t, filepath.Join(bin, name), "#!/bin/sh\n"+body+"\n", 0o755)
		}
	}
	for _, name := range []string{"awk", "bash", "dirname", "grep", "head", "sed", "sort", "tail"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range m.files {
		path := filepath.Join(root, name)
		if rest, ok := strings.CutPrefix(name, "~/"); ok {
			path = filepath.Join(home, rest)
		}
		writeFile(t, path, content, 0o644)
	}
	env := append([]string{"PATH=" + bin, "PREFLIGHT_ROOT=" + root, "HOME=" + home, "XDG_CACHE_HOME="}, m.env...)
	return script(t, env, m.script, level)
}

func TestPreflightPasses(t *testing.T) {
	for _, level := range []string{"build", "nfs", "cluster", "test"} {
		if output, code := able().preflight(t, level); code != 0 || output != "" {
			t.Errorf("%s: exit code %d, %q", level, code, output)
		}
	}
	if output, code := able().preflight(t, "tests"); code != 2 || !strings.Contains(output, "usage") {
		t.Errorf("what is not known: exit code %d, %q", code, output)
	}
}

func TestPreflightNamesWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		what, program, body, want string
	}{
		{"processor", "uname", `case $1 in -m) echo aarch64 ;; -r) echo 6.1.0 ;; esac`, "an x86-64 processor (this is aarch64)"},
		{"kernel", "uname", `case $1 in -m) echo x86_64 ;; -r) echo 5.4.0-42-generic ;; esac`, "Linux 5.12 (this is 5.4.0-42-generic)"},
		{"root", "id", "echo 1000", "root (this is user 1000)"},
		{"namespaces", "unshare", "echo 'unshare failed: Operation not permitted' >&2; false", "namespaces: unshare(2) is refused"},
		{"ptrace", "perl", "false", "ptrace(2): see kernel.yama.ptrace_scope"},
		{"apt", "apt-get", "", "apt-get and dpkg-query"},
		{"no Go", "go", "", "Go 1.26.0"},
		{"old Go", "go", `printf '%s\n' go1.25.3 local`, "Go 1.26.0 (this is 1.25.3)"},
		{"Go that cannot fetch another", "go", `printf '%s\n' go1.19.8 ''`, "Go 1.26.0 (this is 1.19.8)"},
		{"git", "git", "", "git"},
		{"disk", "df", `echo Avail Mounted on; echo 1048576 /`, "8.0 GiB of disk for"},
	} {
		t.Run(c.what, func(t *testing.T) {
			m := able()
			m.programs[c.program] = c.body
			mustLack(t, m, "cluster", c.want)
		})
	}
	for _, c := range []struct {
		what, file, content, level, want string
	}{
		{"Debian", "etc/os-release", "PRETTY_NAME=\"Fedora Linux 43\"\nID=fedora\n", "nfs", `Debian (this is "Fedora Linux 43")`},
		{"memory", "proc/meminfo", "MemAvailable: 1992294 kB\n", "nfs", "2.0 GiB of memory (1.9 GiB available)"},
		{"memory for a cluster", "proc/meminfo", "MemAvailable: 3145728 kB\n", "cluster", "4.0 GiB of memory (3.0 GiB available)"},
		{"memory for all", "proc/meminfo", "MemAvailable: 5242880 kB\n", "test", "6.0 GiB of memory (5.0 GiB available)"},
		{"memory of a control group", "sys/fs/cgroup/memory.max", "1073741824\n", "nfs", "2.0 GiB of memory (1.0 GiB available)"},
	} {
		t.Run(c.what, func(t *testing.T) {
			m := able()
			m.files[c.file] = c.content
			mustLack(t, m, c.level, c.want)
		})
	}
}

// mustLack checks that want is the only requirement that the preflight reports.
func mustLack(t *testing.T, m machine, level, want string) {
	t.Helper()
	output, code := m.preflight(t, level)
	said, ok := strings.CutPrefix(output, "preflight: this machine does not meet the lab's requirements: "+want)
	if code != 1 || !ok || strings.Count(said, "\n") != 1 || strings.Contains(said, ";") {
		t.Errorf("exit code %d, %q, want just %q", code, output, want)
	}
}

func TestPreflightOfACheckoutWithABlank(t *testing.T) {
	checkout := filepath.Join(t.TempDir(), "a b")
	for path, mode := range map[string]os.FileMode{"hack/preflight": 0o755, "go.mod": 0o644} {
		content, err := os.ReadFile(filepath.Join(hack, "..", path))
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(checkout, path), string(content), mode)
	}
	m := able()
	m.script = filepath.Join(checkout, "hack", "preflight")
	mustLack(t, m, "nfs", "a path of the checkout without blanks and commas (this is "+checkout+")")
}

func TestPreflightNamesAllInOneLine(t *testing.T) {
	m := able()
	m.programs["id"], m.programs["git"] = "echo 1000", ""
	output, code := m.preflight(t, "nfs")
	if code != 1 || strings.Count(output, "\n") != 1 || !strings.Contains(output, "root (this is user 1000); git ") {
		t.Errorf("exit code %d, %q", code, output)
	}
	m.env = []string{"PREFLIGHT=off"}
	if output, code := m.preflight(t, "nfs"); code != 0 || output != "" {
		t.Errorf("switched off: exit code %d, %q", code, output)
	}
}

// A newer Go can be downloaded, a control group may be without a limit, and an existing
// build of Kubernetes needs no more space.
func TestPreflightChecksOnlyWhatTheTargetNeeds(t *testing.T) {
	m := able()
	m.programs["go"] = `printf '%s\n' go1.25.3 auto`
	m.programs["df"] = `echo Avail Mounted on; echo 3145728 /`
	m.files["sys/fs/cgroup/memory.max"] = "max\n"
	m.files["~/.cache/nfs-csi-lab/kube-v1-0/kube"] = ""
	if output, code := m.preflight(t, "cluster"); code != 0 || output != "" {
		t.Errorf("exit code %d, %q", code, output)
	}
}
