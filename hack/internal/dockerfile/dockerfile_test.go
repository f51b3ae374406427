package dockerfile_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nfs-csi/nfs-csi/hack/internal/dockerfile"
)

const build = "FROM golang:1 AS build\nRUN anything --goes < here\n"

func target(t *testing.T, text string, args map[string]string) (dockerfile.Target, error) {
	t.Helper()
	file, err := dockerfile.Parse(strings.NewReader(text))
	if err != nil {
		return dockerfile.Target{}, err
	}
	return file.Target("app", args)
}

func TestTarget(t *testing.T) {
	const text = build + `
# a comment
FROM --platform=linux/amd64 scratch AS app
ARG VERSION=dev
LABEL title="the app" \
      # a comment between continued lines
      version=${VERSION} empty=""
COPY --from=build /out/app /app
COPY --from=build /out/helper /bin/helper
USER 65532:65532
WORKDIR /data
ENTRYPOINT ["/app", "--flag"]
CMD ["serve"]
`
	want := dockerfile.Target{
		Copies: []dockerfile.Copy{
			{Stage: "build", From: "/out/app", To: "/app"},
			{Stage: "build", From: "/out/helper", To: "/bin/helper"},
		},
		Entrypoint: []string{"/app", "--flag"},
		Cmd:        []string{"serve"},
		User:       "65532:65532",
		WorkingDir: "/data",
		Labels:     map[string]string{"title": "the app", "version": "v1", "empty": ""},
	}
	got, err := target(t, text, map[string]string{"VERSION": "v1", "UNDECLARED": "x"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("target differs (-want +got):\n%s", diff)
	}
	got, err = target(t, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Labels["version"] != "dev" {
		t.Errorf("version = %q without a build argument, want ARG's default", got.Labels["version"])
	}
}

func TestRefused(t *testing.T) {
	const scratch = build + "FROM scratch AS app\n"
	for name, text := range map[string]string{
		"instruction before FROM":  "ARG A=1\n" + scratch,
		"malformed FROM":           "FROM a b c d\n",
		"open continuation":        scratch + "USER 1 \\\n",
		"base is not scratch":      "FROM alpine AS app\n",
		"RUN":                      scratch + "RUN true\n",
		"ADD":                      scratch + "ADD https://example.com/x /x\n",
		"COPY from the context":    scratch + "COPY a /a\n",
		"COPY from a later stage":  scratch + "COPY --from=other /out/a /a\nFROM x AS other\n",
		"COPY with chown":          scratch + "COPY --chown=1:1 --from=build /out/a /a\n",
		"COPY of a pattern":        scratch + "COPY --from=build /out/* /a\n",
		"COPY into a directory":    scratch + "COPY --from=build /out/a /bin/\n",
		"shell form":               scratch + "ENTRYPOINT /app\n",
		"shell form CMD":           scratch + "CMD serve\n",
		"quoted USER":              scratch + "USER \"1\"\n",
		"undeclared variable":      scratch + "USER $UID\n",
		"ARG with two names":       scratch + "ARG A B\n",
		"LABEL without a value":    scratch + "LABEL a\n",
		"LABEL with an open quote": scratch + "LABEL a=\"b\n",
		"LABEL with an escape":     scratch + `LABEL a="b\"c"` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := target(t, text, nil)
			if !errors.Is(err, dockerfile.ErrUnsupported) {
				t.Errorf("got %+v, %v; want ErrUnsupported", got, err)
			}
		})
	}
}

func TestNoSuchStage(t *testing.T) {
	if _, err := target(t, build, nil); err == nil {
		t.Error("a stage that is not there was found")
	}
}

// TestOurs holds the project's Dockerfile to what deploy/kubernetes relies on.
func TestOurs(t *testing.T) {
	f, err := os.Open("../../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file, err := dockerfile.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	for name, user := range map[string]string{"nfsplugin": "0:0", "csi-provisioner": "65532:65532"} {
		got, err := file.Target(name, map[string]string{"VERSION": "v9"})
		if err != nil {
			t.Fatal(err)
		}
		if got.User != user {
			t.Errorf("%s: user = %q, want %q", name, got.User, user)
		}
		if diff := cmp.Diff([]string{"/" + name}, got.Entrypoint); diff != "" {
			t.Errorf("%s: entry point differs (-want +got):\n%s", name, diff)
		}
		copies := []dockerfile.Copy{{Stage: "build", From: "/out/" + name, To: "/" + name}}
		if diff := cmp.Diff(copies, got.Copies); diff != "" {
			t.Errorf("%s: copies differ (-want +got):\n%s", name, diff)
		}
		if got.Labels["org.opencontainers.image.version"] != "v9" {
			t.Errorf("%s: labels = %v, want the version", name, got.Labels)
		}
	}
}
