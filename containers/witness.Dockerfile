# A witness. The image contains the program, its shared libraries, and public CA certificates. It has no shell, and does not run as root.
#
#   cargo xtask dist
#   docker build --tag witness --file containers/witness.Dockerfile target/dist
#
# The build context is the output folder of `cargo xtask dist`, with exactly one package of the program.

FROM debian:stable-slim AS files
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates \
 && mkdir --parents /files/etc/ssl/certs /files/var/lib/witness /files/tmp \
 && cp /etc/ssl/certs/ca-certificates.crt /files/etc/ssl/certs/ \
 && echo 'witness:x:65532:65532::/var/lib/witness:/usr/sbin/nologin' >/files/etc/passwd \
 && echo 'witness:x:65532:' >/files/etc/group \
 && chown 65532:65532 /files/var/lib/witness && chmod 750 /files/var/lib/witness && chmod 1777 /files/tmp
COPY witness_*.deb /package.deb
RUN dpkg --extract /package.deb /package \
 && install -D /package/usr/bin/witness /files/usr/bin/witness \
 && ldd /files/usr/bin/witness | grep --only-matching '/[^ ]*' | xargs cp --dereference --parents --target-directory=/files

FROM scratch
COPY --from=files /files /
USER 65532:65532
WORKDIR /var/lib/witness
VOLUME /var/lib/witness
# 7400 is for members, 7480 for HTTP.
EXPOSE 7400 7480
HEALTHCHECK --interval=5s --timeout=4s --start-period=60s --retries=3 CMD ["witness", "health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["witness"]
CMD ["run"]
