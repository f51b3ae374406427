# Two images from one build: --target nfsplugin and --target csi-provisioner.
# `make images` packs the same two images without a container engine, from
# hack/images/product.go. Change both: a test compares them.

FROM --platform=$BUILDPLATFORM docker.io/library/golang:1.26.8@sha256:6c2a5538f964f1c82f97ad14988bf05de100d922d159d0e398b54c7b0ca0c6c9 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY Makefile ./
COPY cmd cmd
COPY pkg pkg
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
ARG COMMIT=unknown
ARG DATE=unknown
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH make build BIN=/out VERSION=$VERSION COMMIT=$COMMIT DATE=$DATE

# Root, because mount(2) needs CAP_SYS_ADMIN and volumes belong to anyone.
FROM scratch AS nfsplugin
ARG VERSION=dev
ARG COMMIT=unknown
ARG DATE=unknown
LABEL org.opencontainers.image.title="nfsplugin" \
      org.opencontainers.image.description="CSI driver for NFS" \
      org.opencontainers.image.source="https://github.com/nfs-csi/nfs-csi" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}" \
      org.opencontainers.image.created="${DATE}"
COPY --from=build /out/nfsplugin /nfsplugin
USER 0:0
ENTRYPOINT ["/nfsplugin"]

FROM scratch AS csi-provisioner
ARG VERSION=dev
ARG COMMIT=unknown
ARG DATE=unknown
LABEL org.opencontainers.image.title="csi-provisioner" \
      org.opencontainers.image.description="Provisioner sidecar for CSI drivers" \
      org.opencontainers.image.source="https://github.com/nfs-csi/nfs-csi" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}" \
      org.opencontainers.image.created="${DATE}"
COPY --from=build /out/csi-provisioner /csi-provisioner
USER 65532:65532
ENTRYPOINT ["/csi-provisioner"]
