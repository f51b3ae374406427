package volume

import (
	"fmt"
	"net/netip"
	"path"
	"strings"
)

// Export is a directory that a server exports. Server is a host name
// or an IP address without brackets; Share is absolute and clean.
type Export struct {
	Server string
	Share  string
}

// ParseExport checks and normalizes a server and a share: IPv6 with or without
// brackets, the share with or without leading and trailing slashes.
func ParseExport(server, share string) (Export, error) {
	srv, err := parseServer(server)
	if err != nil {
		return Export{}, err
	}
	shr, err := parseShare(share)
	if err != nil {
		return Export{}, err
	}
	return Export{Server: srv, Share: shr}, nil
}

// Source is the source for mount(2), "server:/share/subDir" with an IPv6 address in
// brackets. An empty subDir names the export itself.
func (e Export) Source(subDir string) string {
	host := e.Server
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + path.Join("/", e.Share, subDir)
}

// String names the export in messages and keys.
func (e Export) String() string { return e.Source("") }

func parseServer(s string) (string, error) {
	if s == "" {
		return "", fmt.Errorf("%w: server is empty", ErrInvalid)
	}
	if in, ok := strings.CutPrefix(s, "["); ok {
		in, ok = strings.CutSuffix(in, "]")
		if _, err := netip.ParseAddr(in); !ok || err != nil {
			return "", fmt.Errorf("%w: server %q is not an IPv6 address in brackets", ErrInvalid, s)
		}
		s = in
	}
	if addr, err := netip.ParseAddr(s); err == nil {
		if strings.ContainsFunc(addr.Zone(), notHostRune) {
			return "", fmt.Errorf("%w: server %q: bad zone", ErrInvalid, s)
		}
		return s, nil
	}
	if len(s) > 253 || s[0] == '-' || s[0] == '.' || strings.Contains(s, "..") || strings.ContainsFunc(s, notHostRune) {
		return "", fmt.Errorf("%w: server %q is neither a host name nor an IP address", ErrInvalid, s)
	}
	return s, nil
}

func notHostRune(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return r != '-' && r != '.' && r != '_'
}

func parseShare(s string) (string, error) {
	if s == "" {
		return "", fmt.Errorf("%w: share is empty; the root of a server is written %q", ErrInvalid, "/")
	}
	rel := strings.Trim(s, "/")
	if rel == "" {
		return "/", nil
	}
	if len(rel) > maxPath {
		return "", fmt.Errorf("%w: share of %d bytes, at most %d are possible", ErrInvalid, len(rel), maxPath)
	}
	for c := range strings.SplitSeq(rel, "/") {
		if err := CheckComponent(c); err != nil {
			return "", fmt.Errorf("share %q: %w", s, err)
		}
	}
	return "/" + rel, nil
}
