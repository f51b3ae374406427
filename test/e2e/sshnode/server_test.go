package sshnode

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
)

// startSleep runs a program of the name until the test ends.
func startSleep(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	link := filepath.Join(dir, name)
	if err := os.Symlink(sleep, link); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command := exec.Command(link, "300")
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = command.Wait() }()
	return command
}

func dial(t *testing.T, s *Server, keyPath string) (*ssh.Client, error) {
	t.Helper()
	key, err := os.ReadFile(keyPath)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return ssh.Dial("tcp", s.Addr().String(), &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
}

func run(t *testing.T, client *ssh.Client, command string) (stdout, stderr string, code int) {
	t.Helper()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	var out, errOut bytes.Buffer
	session.Stdout, session.Stderr = &out, &errOut
	err = session.Run(command)
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitStatus()
	} else if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return out.String(), errOut.String(), code
}

func TestServer(t *testing.T) {
	const program = "sshnode-test"
	first := startSleep(t, program)
	key := filepath.Join(t.TempDir(), "key")
	s, err := Start(t.Context(), "127.0.0.1:0", key, program)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dial(t, s, key)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		command, stdout, stderr string
		code                    int
	}{
		{"echo out; echo err >&2; exit 3", "out\n", "err\n", 3},
		{"systemctl show " + program + " --property ActiveState --value", "active\n", "", 0},
		{"sudo systemctl stop " + program, "", "", 0},
		{"systemctl stop " + program, "", "", 0},
		{"systemctl show " + program + " --property ActiveState --value", "inactive\n", "", 0},
		{"systemctl start " + program, "", "", 0},
		{"systemctl show " + program + " --property ActiveState --value", "active\n", "", 0},
		{"systemctl stop " + program, "", "", 0},
		{"systemctl reload " + program, "", "verb reload: want start, stop or show\n", 1},
		{"systemctl stop other", "", "unit other: want " + program + "\n", 1},
	} {
		stdout, stderr, code := run(t, client, step.command)
		if stdout != step.stdout || stderr != step.stderr || code != step.code {
			t.Errorf("%s: %q, %q, exit code %d; want %+v", step.command, stdout, stderr, code, step)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := findService(program)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	if again.pid == first.Process.Pid || strings.Join(again.args, " ") != strings.Join(first.Args, " ") {
		t.Errorf("process %d runs %q, the first was %d with %q", again.pid, again.args, first.Process.Pid, first.Args)
	}
	if err := again.stop(); err != nil {
		t.Error(err)
	}
}

func TestServerRefusesOtherKeys(t *testing.T) {
	const program = "sshnode-keys"
	sleep := startSleep(t, program)
	t.Cleanup(func() { _ = sleep.Process.Kill() })
	dir := t.TempDir()
	s, err := Start(t.Context(), "127.0.0.1:0", filepath.Join(dir, "key"), program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := writeKey(filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	if client, err := dial(t, s, filepath.Join(dir, "other")); err == nil {
		client.Close()
		t.Error("a client with another key was let in")
	}
}

func TestStartWithoutTheProgram(t *testing.T) {
	if _, err := Start(t.Context(), "127.0.0.1:0", filepath.Join(t.TempDir(), "key"), "sshnode-absent"); err == nil {
		t.Error("started without a program to stop")
	}
}
