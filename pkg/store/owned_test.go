package store

import (
	"errors"
	"strings"
	"testing"

	"github.com/nfs-csi/nfs-csi/pkg/volume"
)

// If a template gives two claims one directory, the error for the second names the
// template, both claims and the directory.
func TestClaimsThatATemplateCannotTellApart(t *testing.T) {
	for template, says := range map[string]string{
		"${.PVC.namespace}-${.PVC.name}": `the directory a-b-c belongs to volume pvc-1 of the claim a/b-c; ` +
			`subDir "${.PVC.namespace}-${.PVC.name}" is the same directory for the claims a/b-c and a-b/c`,
		"data": `the directory data belongs to volume pvc-1 of the claim a/b-c; subDir "data" is the same directory for every claim`,
	} {
		l := newLab(t)
		ask := func(name, namespace, claim string) CreateRequest {
			req := l.classed(name, template, "")
			req.Params.Metadata = map[string]string{volume.KeyPVCNamespace: namespace, volume.KeyPVCName: claim}
			return req
		}
		l.createAs(t, ask("pvc-1", "a", "b-c"))
		before := l.files(t)
		_, err := l.Create(t.Context(), ask("pvc-2", "a-b", "c"))
		if !errors.Is(err, volume.ErrOwned) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want ErrOwned saying %q", err, says)
		}
		l.mustHave(t, before...)
	}
}
