package boot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nfs-csi/nfs-csi/test/lab/ptrace"
)

// Offsets in an extended register set as PTRACE_GETREGSET gives it: the standard
// format of XSAVE (Intel SDM, volume 1, 13.4).
const (
	machineBits = 464 // of the components that the machine has; the kernel's own
	presentBits = 512 // of the components that are not in their initial state
)

// registers are some of each state component; those of AVX-512 lie so on processors of
// both makers.
var registers = []struct {
	name      string
	component int
	from, to  int
	givenBy   int // the shortest set that holds the whole component
}{
	{"x87", 0, 0, 160, 576},
	{"XMM", 1, 160, 416, 576},
	{"YMM", 2, 576, 832, 832},
	{"ZMM16", 7, 1664, 1680, 2696},
}

// fill gives every register a value.
func fill(whole []byte, value byte) []byte {
	set := bytes.Clone(whole)
	present := binary.LittleEndian.Uint64(set[presentBits:])
	for _, r := range registers {
		if binary.LittleEndian.Uint64(set[machineBits:])&(1<<r.component) == 0 {
			continue
		}
		present |= 1 << r.component
		if r.component != 0 { // control words of x87 may not have any value
			copy(set[r.from:r.to], bytes.Repeat([]byte{value}, r.to-r.from))
		}
	}
	binary.LittleEndian.PutUint64(set[presentBits:], present)
	return set
}

// PTRACE_SETREGSET takes no register set that is shorter than the machine's, and with
// the lab's ptrace it does, so the lab boots on processors younger than its kernel.
func TestShortRegisterSet(t *testing.T) {
	program := compile(t, "setregs.c")
	library, err := ptrace.Library(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	whole, err := setRegisters(t, program, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("this machine's register set has %d bytes", len(whole))
	lengths := slices.DeleteFunc([]int{576, 832, 1704, 2696}, func(n int) bool { return n >= len(whole) })
	if len(lengths) == 0 {
		t.Fatal("no set is shorter: want a processor with AVX")
	}
	for _, length := range lengths {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			before, short := fill(whole, 1), fill(whole, 2)[:length]
			_, err := setRegisters(t, program, "", before, short)
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d bytes: Bad address", length)) {
				t.Errorf("with the system's ptrace: got %v, want EFAULT", err)
			}
			got, err := setRegisters(t, program, library, before, short)
			if err != nil {
				t.Fatalf("with the lab's ptrace: %v", err)
			}
			mustHaveSet(t, got, short)
		})
	}
}

// mustHaveSet checks that components which a set holds are as it has them, and all
// others initial.
func mustHaveSet(t *testing.T, got, short []byte) {
	t.Helper()
	has, present := binary.LittleEndian.Uint64(got[machineBits:]), binary.LittleEndian.Uint64(got[presentBits:])
	for _, r := range registers {
		if has&(1<<r.component) == 0 {
			continue
		}
		want, given := make([]byte, r.to-r.from), len(short) >= r.givenBy
		if given {
			want = short[r.from:r.to]
		}
		if (present&(1<<r.component) != 0) != given || !bytes.Equal(got[r.from:r.to], want) {
			t.Errorf("%s: present components %#x, %x, want %x", r.name, present, got[r.from:r.to], want)
		}
	}
}

// setRegisters gives a child one register set after the other, with the library
// preloaded unless it is "", and returns what the child has then.
func setRegisters(t *testing.T, program, library string, sets ...[]byte) ([]byte, error) {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env, cmd.Stderr = append(os.Environ(), "LD_PRELOAD="+library), &stderr
	for _, set := range sets {
		file := filepath.Join(t.TempDir(), "set")
		if err := os.WriteFile(file, set, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd.Args = append(cmd.Args, file)
	}
	got, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, stderr.String())
	}
	return got, err
}

// On a machine that only looks as if its processor had AMX, the kernel alone dies as it
// does on a real one, and the lab boots.
func TestBootsWithAMX(t *testing.T) {
	amx := "LD_PRELOAD=" + compile(t, "amx.c", "-shared", "-fPIC")
	dir := t.TempDir()
	kernel := exec.CommandContext(t.Context(), "/usr/bin/linux.uml", "mem=64M", "noreboot", "panic=-1", "uml_dir="+dir,
		"rootfstype=hostfs", "rootflags=/", "ro", "init=/bin/true", "con=null", "con0=null,fd:1")
	kernel.Env = append(os.Environ(), amx, "TMPDIR="+dir)
	if out, _ := kernel.CombinedOutput(); !bytes.Contains(out, []byte("put_fp_registers")) {
		t.Errorf("the kernel does not die in put_fp_registers: %s", end(string(out)))
	}

	cmd := command(t, "--", "echo", "booted")
	cmd.Env = append(os.Environ(), amx)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "booted\n" {
		t.Errorf("the lab: %v: %s", err, end(string(out)))
	}
}

// compile makes a program, or with -shared a library, of a C file in testdata.
func compile(t *testing.T, source string, flags ...string) string {
	t.Helper()
	made := filepath.Join(t.TempDir(), strings.TrimSuffix(source, ".c"))
	args := slices.Concat(flags, []string{"-Wall", "-Wextra", "-Werror", "-o", made, filepath.Join("testdata", source)})
	if out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("compile %s: %v: %s", source, err, out)
	}
	return made
}
