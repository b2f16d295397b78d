# A witness: the program, the libraries that it is linked with, and the authorities of the public web. No shell, no root.
#
#   cargo xtask dist
#   docker build --tag witness --file containers/witness.Dockerfile target/dist
#
# The folder that is given to it holds one package of the program, as `cargo xtask dist` makes it.

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
# Members at 7400, HTTP at 7480.
EXPOSE 7400 7480
HEALTHCHECK --interval=5s --timeout=4s --start-period=60s --retries=3 CMD ["witness", "health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["witness"]
CMD ["run"]
