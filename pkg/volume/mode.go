package volume

import (
	"fmt"
	"io/fs"
	"strconv"
)

// Mode is the permission bits of a directory with setuid, setgid and sticky, as
// chmod(2) takes them; 0 is unset. Its text form is octal.
type Mode uint32

const maxMode = 0o7777

// ParseMode reads an octal number. Empty and 0 are unset, as in csi-driver-nfs.
func ParseMode(s string) (Mode, error) {
	if s == "" {
		return 0, nil
	}
	m, err := strconv.ParseUint(s, 8, 32)
	if err != nil || m > maxMode {
		return 0, fmt.Errorf("%w: mode %q is not an octal number up to 7777", ErrInvalid, s)
	}
	return Mode(m), nil
}

func (m Mode) String() string { return fmt.Sprintf("%04o", uint32(m)) }

// MarshalText implements encoding.TextMarshaler.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *Mode) UnmarshalText(b []byte) (err error) {
	*m, err = ParseMode(string(b))
	return err
}

// Plain tells whether mkdir(2) alone can set this mode: it ignores setuid and setgid.
func (m Mode) Plain() bool { return m&^0o777 == 0 }

// FileMode converts the mode for package os.
func (m Mode) FileMode() fs.FileMode {
	out := fs.FileMode(m & 0o777)
	for bit, flag := range map[Mode]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if m&bit != 0 {
			out |= flag
		}
	}
	return out
}

// ParseUserID reads a numeric user or group ID.
func ParseUserID(s string) (*uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	// The highest number is "leave unchanged" for chown(2).
	if err != nil || n == 1<<32-1 {
		return nil, fmt.Errorf("%w: %q is not a numeric user or group ID", ErrInvalid, s)
	}
	id := uint32(n)
	return &id, nil
}
