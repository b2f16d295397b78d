//! The member's binlog server: its log, as far as it is committed, for stock replicas and other consumers. It runs from
//! the moment at which the member takes part to its end, whoever leads.

mod orders;
mod served_log;

use std::sync::Arc;

use binlog_server::{
    Account, BinlogServer, Consumers, DumpKind, ServerCertificate, ServerIdentity, ServerOptions,
};
use orders::Orders;
use raft_types::{Incarnation, MemberId};
use served_log::ServedLog;
use tokio::net::TcpListener;

use crate::error::MemberError;
use crate::mysqld::usual_server_id;
use crate::ring_handle::RingHandle;
use crate::settings::{BinlogServerSettings, Settings};
use crate::status::ConsumerView;

/// A server that is ready to serve.
pub(crate) struct Ready {
    pub(crate) server: BinlogServer,
    pub(crate) log: Arc<ServedLog>,
}

/// Prepares the server on a listener that is open.
///
/// # Errors
/// When the password or the certificate cannot be read.
pub(crate) fn prepare(
    config: &Settings,
    settings: &BinlogServerSettings,
    listener: TcpListener,
    ring: &RingHandle,
    incarnation: Incarnation,
) -> Result<Ready, MemberError> {
    let options = options(config, settings, incarnation)?;
    let log = Arc::new(ServedLog::new(ring.clone()));
    let orders = Arc::new(Orders::new(config, ring.clone()));
    let server = BinlogServer::new(listener, options, log.clone(), orders)?;
    Ok(Ready { server, log })
}

fn options(
    config: &Settings,
    settings: &BinlogServerSettings,
    incarnation: Incarnation,
) -> Result<ServerOptions, MemberError> {
    let password = settings.password.read();
    let account = Account {
        user: settings.user.clone(),
        password: password.map_err(|source| MemberError::PasswordFile {
            key: "binlog_server.password_file",
            source,
        })?,
    };
    let own = &config.own;
    let identity = identity(own.id, &own.name, incarnation);
    let pair = |(certificate_file, key_file)| ServerCertificate {
        certificate_file,
        key_file,
    };
    Ok(ServerOptions {
        certificate: settings.certificate.clone().map(pair),
        require_tls: settings.require_tls,
        max_connections: settings.max_connections,
        queue_bytes: settings.queue_bytes,
        ..ServerOptions::new(account, identity)
    })
}

/// A member's incarnation is nobody else's, and no mysqld has it for its UUID.
fn identity(member: MemberId, name: &str, incarnation: Incarnation) -> ServerIdentity {
    ServerIdentity {
        server_id: usual_server_id(member),
        server_uuid: incarnation.0,
        name: name.to_owned(),
    }
}

/// Gives the views of those who are attached.
pub(crate) fn viewer(
    consumers: Consumers,
    log: Arc<ServedLog>,
) -> impl Fn() -> Vec<ConsumerView> + Send + Sync + 'static {
    move || {
        let views = consumers.views(&*log).into_iter();
        let view = |view: binlog_server::ConsumerView| ConsumerView {
            name: name(&view),
            address: view.address.to_string(),
            server_id: view.server_id,
            server_uuid: view.uuid,
            asked_by: match view.kind {
                DumpKind::Gtids => "gtids".to_owned(),
                DumpKind::Position => "position".to_owned(),
            },
            file: binlog_server::CommittedLog::name_of(&*log, view.position.file),
            position: view.position.offset,
            behind_bytes: view.behind_bytes,
            queued_bytes: view.queued_bytes,
            attached_seconds: view.attached.as_secs_f64(),
        };
        views.map(view).collect()
    }
}

/// What people know a consumer by.
fn name(view: &binlog_server::ConsumerView) -> String {
    match (&view.host[..], view.port, view.server_id) {
        ("", _, 0) => view.address.to_string(),
        ("", _, id) => format!("server {id}"),
        (host, 0, _) => host.to_owned(),
        (host, port, _) => format!("{host}:{port}"),
    }
}
