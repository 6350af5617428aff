# The server and its load generator, in an image that holds nothing else: `docker build -t dunlin .`. How to run it: docs/deploying.md.
ARG RUST_IMAGE=rust:1.95-slim-bookworm

FROM ${RUST_IMAGE} AS build
WORKDIR /src
COPY . .
# aws-lc, the TLS library's cryptography, is C, and RocksDB is C++. libclang reads its header.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc g++ libc6-dev binutils ca-certificates libclang-dev \
    && cargo build --release --locked --package dunlin --package dunlin-bench --target-dir /target \
    && strip /target/release/dunlin /target/release/dunlin-bench \
    && packaging/image-root /target/release/dunlin-bench /image /etc/dunlin \
    && packaging/image-root /target/release/dunlin /image

FROM scratch
COPY --from=build /image/ /
# A number, so that Kubernetes can check `runAsNonRoot`.
USER 65532:65532
WORKDIR /etc/dunlin
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s CMD ["/usr/bin/dunlin", "health"]
ENTRYPOINT ["/usr/bin/dunlin"]
CMD ["serve"]
