package cli

import (
	"strings"
	"testing"
)

func TestParseRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "want a command"},
		{[]string{"clutser"}, `unknown command "clutser"`},
		{[]string{"deps", "now"}, `deps takes no arguments, got ["now"]`},
		{[]string{"build", "--", "x"}, "build takes no arguments"},
		{[]string{"nfs", "--ext4-sise=1G"}, "unknown flag: --ext4-sise"},
		{[]string{"nfs", "--timeout=soon"}, `invalid argument "soon"`},
	} {
		if _, err := parse(c.args); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("parse(%q) = %v, want an error with %q", c.args, err, c.want)
		}
	}
}

func TestParseLeavesTheCommandsFlagsAlone(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	if _, err := parse([]string{"nfs", "--keep", "--", "ls", "--color", "-l"}); err != nil {
		t.Error(err)
	}
}
