# A database member, based on an image with mysqld. The member is the container's first process, and mysqld is its child.
#
#   cargo xtask dist
#   docker build --tag witness-database --file containers/database.Dockerfile target/dist
#
# The base image can be any with MySQL 8.0.15 or later, mysqld on its PATH, and glibc 2.34 or later.

ARG MYSQL_IMAGE=mysql:8.4

FROM debian:stable-slim AS files
COPY witness_*.deb /package.deb
RUN dpkg --extract /package.deb /package && mkdir --parents /empty && chmod 750 /empty

FROM ${MYSQL_IMAGE}
COPY --from=files /package/usr/bin/witness /usr/bin/witness
# 999 is the user `mysql` in MySQL's images. A new volume gets the owner of this directory.
COPY --from=files --chown=999:999 /empty /var/lib/witness
USER 999:999
WORKDIR /var/lib/witness
VOLUME /var/lib/witness
# 3306 is for clients, 7400 for members, 7480 for HTTP.
EXPOSE 3306 7400 7480
HEALTHCHECK --interval=5s --timeout=4s --start-period=120s --retries=3 CMD ["/usr/bin/witness", "health"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/witness"]
CMD ["run"]
