package main

import (
	"os"
	"strings"
	"testing"
	"text/template"

	"github.com/google/go-cmp/cmp"
)

// stage is the Dockerfile stage that builds the same image as is packed.
var stage = template.Must(template.New("stage").Parse(`FROM scratch AS {{.name}}
ARG VERSION=dev
ARG COMMIT=unknown
ARG DATE=unknown
LABEL org.opencontainers.image.title="{{.title}}" \
      org.opencontainers.image.description="{{.description}}" \
      org.opencontainers.image.source="{{.source}}" \
      org.opencontainers.image.licenses="{{.licenses}}" \
      org.opencontainers.image.version="{{.version}}" \
      org.opencontainers.image.revision="{{.revision}}" \
      org.opencontainers.image.created="{{.created}}"
COPY --from=build {{.from}} {{.to}}
USER {{.user}}
ENTRYPOINT ["{{.entrypoint}}"]
`))

// TestDockerfile checks the Dockerfile against the images that are packed without it.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(string(text), "\nFROM scratch")
	var want strings.Builder
	for _, p := range products() {
		spec := p.spec("/out/"+p.name, "amd64", build{version: "${VERSION}", commit: "${COMMIT}", date: "${DATE}"})
		values := map[string]string{
			"name": p.name, "user": spec.User, "from": spec.Entries[0].Source, "to": spec.Entries[0].Path,
			"entrypoint": strings.Join(spec.Entrypoint, " "),
		}
		for label, value := range spec.Labels {
			values[strings.TrimPrefix(label, "org.opencontainers.image.")] = value
		}
		if err := stage.Execute(&want, values); err != nil {
			t.Fatal(err)
		}
		want.WriteString("\n")
	}
	if diff := cmp.Diff(strings.TrimSpace(want.String()), strings.TrimSpace("FROM scratch"+got)); diff != "" {
		t.Errorf("the stages differ from what is packed (-packed +Dockerfile):\n%s", diff)
	}
}
