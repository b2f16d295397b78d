//! The member's connection to its mysqld, and its requirements for mysqld, from the configuration.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use binlog_server::Account;
use mysql_link::{
    ClientCertificate, ConnectOptions, Endpoint, PublicKeySource, Secret, TlsOptions,
};
use mysqld_server::settings::Requirements;
use mysqld_server::supervisor::{
    AccountRights, ExternalCommands, ExternalServer, ServerCommand, SupervisorOptions,
};
use mysqld_server::{BinlogPlace, ReplicationSource, SourceTls};
use raft_types::{Incarnation, MemberId};

use crate::settings::{MysqlMode, MysqlSettings, Settings};

/// Returns the options to connect to mysqld. Reads the password file.
///
/// # Errors
/// If the password file cannot be read.
pub fn connect_options(settings: &MysqlSettings) -> io::Result<ConnectOptions> {
    let endpoint = match &settings.socket {
        Some(socket) => Endpoint::unix(socket),
        None => Endpoint::tcp(&settings.host, settings.port),
    };
    let password = Secret::new(settings.password.read()?);
    let certificate = settings.tls_certificate.clone();
    let mut options = ConnectOptions::new(endpoint, &settings.user, password);
    options.tls = TlsOptions {
        mode: settings.tls,
        ca_file: settings.tls_ca_file.clone(),
        client_certificate: certificate.map(|(certificate_file, key_file)| ClientCertificate {
            certificate_file,
            key_file,
        }),
    };
    if let Some(file) = &settings.public_key_file {
        options.public_key = PublicKeySource::File(file.clone());
    }
    Ok(options)
}

/// Returns the requirements for mysqld, and the identity with which the member attaches to it.
pub(crate) fn requirements(
    settings: &MysqlSettings,
    member: MemberId,
    incarnation: Incarnation,
) -> Requirements {
    let server_id = settings.server_id.unwrap_or(usual_server_id(member));
    let uuid = settings.server_uuid.unwrap_or(incarnation.0);
    Requirements {
        max_transaction_bytes: settings.max_transaction_bytes,
        manage_settings: settings.manage_settings,
        accept_unproven: settings.accept_unproven,
        starts_elsewhere: settings.mode == MysqlMode::Attach,
        binlog: binlog_of_an_external(settings),
        native: settings.native,
        ..Requirements::new(server_id, uuid)
    }
}

/// Returns the location of the binlog of a mysqld that another program starts with unknown options.
fn binlog_of_an_external(settings: &MysqlSettings) -> Option<BinlogPlace> {
    let (external, data_dir) = (settings.external.as_ref()?, settings.datadir.as_deref()?);
    let option = format!("--log-bin={}", external.log_bin);
    BinlogPlace::of_options([option.as_str()], &absolute(data_dir), "")
}

/// Returns how the member's guard connects to mysqld. If the member has started mysqld, also returns how the guard kills it. Reads the
/// password file.
///
/// # Errors
/// If the password file cannot be read.
pub fn guarded_server(
    config: &Settings,
    settings: &MysqlSettings,
) -> io::Result<(ConnectOptions, Option<SupervisorOptions>)> {
    let connect = connect_options(settings)?;
    let server = supervisor_options(config, settings, &connect);
    Ok((connect, server))
}

/// Returns the options with which the member runs mysqld, directly or through commands.
pub(crate) fn supervisor_options(
    config: &Settings,
    settings: &MysqlSettings,
    account: &ConnectOptions,
) -> Option<SupervisorOptions> {
    if settings.mode == MysqlMode::Attach {
        return None;
    }
    let own = |name: &str| absolute(&config.data_dir.join(name));
    let socket = settings.socket.as_deref();
    let external = settings.external.as_ref();
    let pid_file = external.and_then(|external| external.pid_file.as_deref());
    let server = ServerCommand {
        command: settings.mysqld.clone(),
        data_dir: absolute(settings.datadir.as_deref()?),
        socket: socket.map_or_else(|| own("mysqld.sock"), absolute),
        port: Some(settings.port),
        pid_file: pid_file.map_or_else(|| own("mysqld.pid"), absolute),
        error_log: own("mysqld.err"),
        extra_args: match external {
            Some(external) => vec![format!("--log-bin={}", external.log_bin)],
            None => settings.extra_args.clone(),
        },
    };
    Some(SupervisorOptions {
        may_initialise: settings.initialize && external.is_none(),
        // The options of a child process are only set by the member.
        may_take_out_persisted: settings.manage_settings || external.is_none(),
        rights: match settings.native {
            true => AccountRights::Native,
            false => AccountRights::All,
        },
        external: external.map(|external| -> Arc<dyn ExternalServer> {
            Arc::new(ExternalCommands {
                start: external.start.clone(),
                stop: external.stop.clone(),
                kill: external.kill.clone(),
                limit: START_LIMIT,
            })
        }),
        ..SupervisorOptions::new(server, account.clone())
    })
}

/// Returns the source of mysqld's own replica threads, if these threads apply the log.
pub(crate) fn native_source(config: &Settings, account: &Account) -> Option<ReplicationSource> {
    let wanted = config.mysql.as_ref().is_some_and(|mysql| mysql.native);
    let server = config.binlog_server.as_ref().filter(|_| wanted)?;
    let (host, port) = near_address(&server.listen);
    Some(ReplicationSource {
        host,
        port,
        user: account.user.clone(),
        password: account.password.clone(),
        // The source is this member's own binlog server, on the same host.
        tls: match server.require_tls {
            true => SourceTls::Unverified,
            false => SourceTls::Off,
        },
    })
}

/// Returns the address at which a listener can be reached from the same host.
fn near_address(listen: &str) -> (String, u16) {
    let (host, port) = listen.rsplit_once(':').unwrap_or((listen, ""));
    let host = match host.trim_start_matches('[').trim_end_matches(']') {
        "" | "0.0.0.0" => "127.0.0.1",
        "::" => "::1",
        other => other,
    };
    (host.to_owned(), port.parse().unwrap_or(0))
}

/// How long a command may take to start mysqld, including its recovery.
const START_LIMIT: Duration = Duration::from_secs(600);

/// Makes a path absolute, because mysqld changes its working directory. If that is not possible, the path is returned unchanged, and mysqld
/// reports the error.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Server ids that users choose are usually small, so those of members begin with a high number.
const FIRST_SERVER_ID: u32 = 4_000_000_000;
const SERVER_IDS: u64 = 200_000_000;

/// The default server id of a member in MySQL's protocol.
pub(crate) fn usual_server_id(member: MemberId) -> u32 {
    FIRST_SERVER_ID + u32::try_from(member.0 % SERVER_IDS).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_reached_from_its_own_host() {
        let near = |listen| near_address(listen);
        assert_eq!(near("0.0.0.0:3307"), ("127.0.0.1".to_owned(), 3307));
        assert_eq!(near("[::]:3307"), ("::1".to_owned(), 3307));
        assert_eq!(near("10.0.0.1:3307"), ("10.0.0.1".to_owned(), 3307));
    }

    #[test]
    fn members_have_server_ids_of_their_own() {
        assert_eq!(usual_server_id(MemberId(1)), 4_000_000_001);
        assert_eq!(usual_server_id(MemberId(SERVER_IDS + 2)), 4_000_000_002);
        assert!(usual_server_id(MemberId(SERVER_IDS - 1)) < u32::MAX);
    }
}
