# syntax=docker/dockerfile:1
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ENV GOCACHE=/go/cache
ARG TARGETOS TARGETARCH VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go/cache \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.buildVersion=$VERSION" -o /image/bin/sluice ./cmd/sluice
# Deployments of envoyproxy/ratelimit start /bin/ratelimit; a link serves them.
RUN ln -s sluice /image/bin/ratelimit && \
    mkdir -p /image/etc/ssl/certs && cp /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/

# One static file, and certificates to check Redis' and the management server's with. Nothing is written, so any user
# and a read-only root will do.
FROM scratch
COPY --from=build /image/ /
USER 65532:65532
EXPOSE 8080 8081 6070
ENTRYPOINT ["/bin/sluice"]
