# The bridge, one static program, on an image without shell and package manager
# that has certificates, time zones and the user nonroot (65532); and a directory
# for checkpoints that belongs to it.
#
# `make test-node` builds it with buildah, on stand-ins for the two base images,
# and runs it on a kubelet. test/compose reads it with BuildKit's parser.
#
# It needs BuildKit, which Docker uses since 23.0 (before: DOCKER_BUILDKIT=1), or
# buildah: the classic builder does not know $BUILDPLATFORM.
#
#   docker build --build-arg VERSION=$(git describe --tags --always) -t kubebridge .

FROM --platform=$BUILDPLATFORM golang:1.26.8 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY internal internal
COPY pkg pkg
COPY docs/schemas docs/schemas
ARG VERSION
ARG TARGETOS TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /out/bridge ./cmd/bridge
# Its group may write, so that it works under any user of that group; a new
# volume that is mounted here begins with these permissions.
RUN mkdir /out/lib && mkdir -m 0770 /out/lib/kubebridge

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/bridge /usr/local/bin/bridge
COPY --from=build --chown=65532:65532 /out/lib /var/lib
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/bridge"]
CMD ["run", "-c", "/etc/kubebridge/config.yaml"]
