//! Connections to real servers, and to a scripted one.

mod an_older_server_asks_for_native_password;
mod certificates;
mod each_way_of_authentication;
mod preferred_tls_is_not_demanded;
mod replication_stream;
mod several_statements;
mod statements;
