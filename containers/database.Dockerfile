# A database member: on top of an image with mysqld, the member is the first process and mysqld its child.
#
#   cargo xtask dist
#   docker build --tag witness-database --file containers/database.Dockerfile target/dist
#
# Any image with mysqld on its PATH will do, of MySQL 8.0.15 or later and with a C library of 2.34 or later.

ARG MYSQL_IMAGE=mysql:8.4

FROM debian:stable-slim AS files
COPY witness_*.deb /package.deb
RUN dpkg --extract /package.deb /package && mkdir --parents /empty && chmod 750 /empty

FROM ${MYSQL_IMAGE}
COPY --from=files /package/usr/bin/witness /usr/bin/witness
# 999 is `mysql` in the images of MySQL. A new volume gets this directory's owner.
COPY --from=files --chown=999:999 /empty /var/lib/witness
USER 999:999
WORKDIR /var/lib/witness
VOLUME /var/lib/witness
# Clients at 3306, members at 7400, HTTP at 7480.
EXPOSE 3306 7400 7480
HEALTHCHECK --interval=5s --timeout=4s --start-period=120s --retries=3 CMD ["/usr/bin/witness", "health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/witness"]
CMD ["run"]
