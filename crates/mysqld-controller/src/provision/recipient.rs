//! What happens at the recipient, whose role is held meanwhile: what would be lost, the copy, and the proof that it is there.

use std::path::PathBuf;
use std::time::Duration;

use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, Connection, LinkError, literal, server_code};

use crate::apply::drop_channel;
use crate::binlog_place::BinlogPlace;
use crate::provision::donor::{
    CloneAccount, CloneOffer, drop_accounts, has_plugin, install_plugin, number, value,
};
use crate::provision::error::ProvisionError;
use crate::provision::keyring::has_keyring;
use crate::provision::transactions::end_sessions;
use crate::settings::{StopWaitingError, stop_waiting_for_acks};

/// How often a copy is begun where somebody closes mysqld for writes.
const CLOSED_ONCE_MORE: u32 = 3;
/// The longest that a copy may take.
const LONGEST_COPY: Duration = Duration::from_secs(7 * 24 * 3600);

/// What a server has executed.
///
/// # Errors
/// [`ProvisionError`].
pub async fn executed(connect: &ConnectOptions) -> Result<GtidSet, ProvisionError> {
    let mut connection = reach(connect).await?;
    let what = "gtid_executed";
    let executed = value(&mut connection, "SELECT @@GLOBAL.gtid_executed", what).await?;
    connection.close().await;
    let executed = executed.parse();
    executed.map_err(|_| ProvisionError::Answer { what })
}

/// Its schemas with the bytes of their tables and indexes, about. Of a server with very many tables that is no quick question.
///
/// # Errors
/// [`ProvisionError`].
pub async fn schema_sizes(connect: &ConnectOptions) -> Result<Vec<(String, u64)>, ProvisionError> {
    let mut connection = reach(connect).await?;
    let what = "the sizes of the schemas";
    let answer = connection
        .query(
            "SELECT s.schema_name, CAST(IFNULL(SUM(t.data_length + t.index_length), 0) AS UNSIGNED) \
             FROM information_schema.schemata s LEFT JOIN information_schema.tables t ON t.table_schema = s.schema_name \
             WHERE s.schema_name NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') \
             GROUP BY s.schema_name ORDER BY s.schema_name",
        )
        .await
        .map_err(ProvisionError::at(what))?;
    connection.close().await;
    let schemas = answer.rows.iter().map(|row| {
        let bytes = row.text_at(1).and_then(|bytes| bytes.parse().ok());
        Some((row.text_at(0)?.to_owned(), bytes?))
    });
    let schemas = schemas.collect::<Option<_>>();
    schemas.ok_or(ProvisionError::Answer { what })
}

/// What is done before the files of a binlog are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeforeALook {
    /// A new file is begun, so that what there is will not be written to any more.
    BeginAFile,
    /// Nothing is changed.
    Nothing,
}

/// Says where a server's binlog files are; `None` where it has none.
///
/// # Errors
/// [`ProvisionError`].
pub async fn log_place(
    connect: &ConnectOptions,
    before: BeforeALook,
) -> Result<Option<BinlogPlace>, ProvisionError> {
    let mut connection = reach(connect).await?;
    let what = "where the binlog is";
    if number(&mut connection, "SELECT @@GLOBAL.log_bin", what).await? == 0 {
        return Ok(None);
    }
    if before == BeforeALook::BeginAFile {
        let flushed = connection.execute("FLUSH BINARY LOGS").await;
        flushed.map_err(ProvisionError::at("a new binlog file cannot be begun"))?;
    }
    let data_dir = value(&mut connection, "SELECT @@GLOBAL.datadir", what).await?;
    let index = value(&mut connection, "SELECT @@GLOBAL.log_bin_index", what).await?;
    connection.close().await;
    Ok(Some(BinlogPlace::of_index(
        PathBuf::from(data_dir),
        &PathBuf::from(index),
    )))
}

/// Makes a server that the member applies nothing to ready for its copy, which it has to be able to read: no replica threads that an earlier life of the member has
/// left at work, the plugin, its door open to administrators alone, as the copy needs it, nothing that waits for the ring, no
/// account by which others could copy it, and no session whose locks on a table would keep that from being removed. The locks of
/// [prepared transactions](super::prepared_transactions) are not ended with it.
///
/// # Errors
/// [`ProvisionError`]; it may be left half ready, and is made ready again the next time.
pub async fn make_ready(
    connect: &ConnectOptions,
    host: &str,
    offer: &CloneOffer,
) -> Result<(), ProvisionError> {
    let mut connection = reach(connect).await?;
    let what = "mysqld cannot be made ready for the copy";
    if offer.keyring_needed {
        let has_keyring = has_keyring(&mut connection).await;
        if !has_keyring.map_err(ProvisionError::at("whether it has a keyring"))? {
            return Err(ProvisionError::NoKeyring);
        }
    }
    stop_waiting_for_acks(&mut connection)
        .await
        .map_err(|error| match error {
            StopWaitingError::CommitsWait(_) => ProvisionError::CommitsWait,
            StopWaitingError::Link(error) => ProvisionError::at(what)(error),
        })?;
    let made = async {
        drop_channel(&mut connection).await?;
        connection
            .execute("SET GLOBAL read_only = ON, GLOBAL super_read_only = OFF")
            .await?;
        // Whoever got an account for a copy of it would copy nothing from now on.
        connection.execute("SET SESSION sql_log_bin = 0").await?;
        drop_accounts(&mut connection, &CloneAccount::pattern(None)).await?;
        end_sessions(&mut connection, &connect.user).await?;
        if !has_plugin(&mut connection).await? {
            install_plugin(&mut connection).await?;
        }
        let donor = format!("{host}:{}", offer.port);
        let list = format!("SET GLOBAL clone_valid_donor_list = {}", literal(&donor));
        connection.execute(&list).await
    };
    made.await.map_err(ProvisionError::at(what))?;
    connection.close().await;
    Ok(())
}

/// Has the data replaced by the donor's. mysqld restarts or ends behind that, so that success is a broken connection or
/// error 3707 too: what became of it, [`look`] tells.
///
/// # Errors
/// [`ProvisionError`].
pub async fn copy(
    connect: &ConnectOptions,
    host: &str,
    offer: &CloneOffer,
) -> Result<(), ProvisionError> {
    let statement = format!(
        "CLONE INSTANCE FROM '{}'@{}:{} IDENTIFIED BY {}",
        offer.account,
        literal(host),
        offer.port,
        literal(&offer.password)
    );
    // The member's fence may have closed it once more, by an order from before its hands were held. mysqld refuses then before it has
    // removed anything.
    for _ in 0..CLOSED_ONCE_MORE {
        let mut connection = reach(connect).await?;
        let copied = connection.query_within(&statement, LONGEST_COPY).await;
        match copied {
            Ok(_) => return Ok(()),
            Err(LinkError::Server(error)) if error.code == server_code::RESTART_FAILED => {
                return Ok(());
            }
            Err(LinkError::Server(error))
                if error.code == server_code::OPTION_PREVENTS_STATEMENT =>
            {
                tracing::info!(%error, "the copy is begun again: mysqld was closed meanwhile");
                make_ready(connect, host, offer).await?;
            }
            Err(error) => return Err(ProvisionError::at("the copy ended")(error)),
        }
    }
    Err(ProvisionError::Closed)
}

/// How far a copy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyState {
    /// mysqld does not answer; the text says why.
    Down(String),
    /// The data are the donor's.
    There,
    /// They are on their way.
    UnderWay {
        /// What is being done: `FILE COPY` and the like.
        stage: String,
        /// Bytes that were copied so far.
        bytes: u64,
        /// Bytes that are expected, about.
        of: u64,
    },
    /// All has come, and mysqld is about to restart or to end: it says so until it has ended.
    Ending,
    /// Nothing is on its way.
    Not {
        /// Whether mysqld has begun to remove its own data.
        begun: bool,
        /// What mysqld says of the last attempt.
        error: Option<String>,
    },
}

/// Looks how far the copy with this account is.
pub async fn look(connect: &ConnectOptions, account: &CloneAccount) -> CopyState {
    let looked = async {
        let mut connection = reach(connect).await?;
        let found = state(&mut connection, account).await;
        let found = found.map_err(ProvisionError::at(
            "mysqld does not say how far the copy is",
        ))?;
        connection.close().await;
        Ok::<CopyState, ProvisionError>(found)
    };
    looked
        .await
        .unwrap_or_else(|error| CopyState::Down(error.to_string()))
}

async fn state(
    connection: &mut Connection,
    account: &CloneAccount,
) -> Result<CopyState, LinkError> {
    let there = format!("SELECT COUNT(*) FROM mysql.user WHERE user = '{account}'");
    let there = connection.query(there).await?;
    if there.first().and_then(|row| row.text_at(0)) != Some("0") {
        return Ok(CopyState::There);
    }
    if !has_plugin(connection).await? {
        return Ok(CopyState::Not {
            begun: false,
            error: None,
        });
    }
    let status = connection
        .query(
            "SELECT s.state, s.error_no, s.error_message, \
             EXISTS (SELECT 1 FROM performance_schema.threads t WHERE t.processlist_id = s.pid), s.pid \
             FROM performance_schema.clone_status s",
        )
        .await?;
    let stages = connection
        .query(
            "SELECT stage, state, IFNULL(estimate, 0), IFNULL(data, 0) FROM performance_schema.clone_progress ORDER BY id",
        )
        .await?;
    let stages: Vec<Stage> = stages
        .rows
        .iter()
        .map(|row| Stage {
            name: row.text_at(0).unwrap_or_default().to_owned(),
            state: row.text_at(1).unwrap_or_default().to_owned(),
            estimate: row
                .text_at(2)
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
            data: row
                .text_at(3)
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
        })
        .collect();
    let row = status.first();
    let text = |place: usize| row.and_then(|row| row.text_at(place)).unwrap_or_default();
    let session = match (text(3), text(4)) {
        ("1", _) => CopySession::Alive,
        (_, "" | "0") => CopySession::BeforeTheStart,
        _ => CopySession::Gone,
    };
    Ok(judge(text(0), session, text(1), text(2), &stages))
}

/// The session of which the server's tables speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopySession {
    Alive,
    /// It was one of this process.
    Gone,
    /// It was one of an earlier process, or there was none: what the tables say stays in them.
    BeforeTheStart,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Stage {
    name: String,
    state: String,
    estimate: u64,
    data: u64,
}

/// What the server's tables mean where the copy is not there, pure. mysqld says "Completed" behind its restart alone: then it is
/// an earlier copy that has come. Before, all files are synced, and a moment later the session is gone and mysqld is not yet.
fn judge(
    state: &str,
    session: CopySession,
    code: &str,
    message: &str,
    stages: &[Stage],
) -> CopyState {
    let is_synced = |stage: &Stage| stage.name == "FILE SYNC" && stage.state == "Completed";
    match (state, session) {
        ("In Progress", CopySession::Alive | CopySession::Gone) if stages.iter().any(is_synced) => {
            CopyState::Ending
        }
        ("In Progress", CopySession::Alive) => {
            let now = stages.iter().find(|stage| stage.state == "In Progress");
            CopyState::UnderWay {
                stage: now.map_or_else(|| "CLONE".to_owned(), |stage| stage.name.clone()),
                bytes: stages.iter().map(|stage| stage.data).sum(),
                of: stages
                    .iter()
                    .map(|stage| stage.estimate.max(stage.data))
                    .sum(),
            }
        }
        ("Completed", _) => CopyState::Not {
            begun: false,
            error: None,
        },
        _ => CopyState::Not {
            begun: stages
                .iter()
                .any(|stage| stage.name == "DROP DATA" && stage.state != "Not Started"),
            error: (code != "0" && !message.is_empty())
                .then(|| format!("{message} (MySQL error {code})")),
        },
    }
}

/// Takes the accounts away that came with a copy.
///
/// # Errors
/// [`ProvisionError`].
pub async fn finish(connect: &ConnectOptions) -> Result<(), ProvisionError> {
    let mut connection = reach(connect).await?;
    let finished = async {
        connection.execute("SET SESSION sql_log_bin = 0").await?;
        connection
            .execute("SET GLOBAL read_only = ON, GLOBAL super_read_only = OFF")
            .await?;
        drop_accounts(&mut connection, &CloneAccount::pattern(None)).await
    };
    let what = "the accounts that came with the copy cannot be removed";
    finished.await.map_err(ProvisionError::at(what))?;
    connection.close().await;
    Ok(())
}

pub(super) async fn reach(connect: &ConnectOptions) -> Result<Connection, ProvisionError> {
    let opened = Connection::open_with_own_settings(connect).await;
    opened.map_err(ProvisionError::at("mysqld cannot be reached"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &str, state: &str, estimate: u64, data: u64) -> Stage {
        Stage {
            name: name.to_owned(),
            state: state.to_owned(),
            estimate,
            data,
        }
    }

    #[test]
    fn what_the_tables_of_a_copy_mean() {
        use CopySession::{Alive, BeforeTheStart, Gone};
        let copying = [
            stage("DROP DATA", "Completed", 0, 0),
            stage("FILE COPY", "In Progress", 1000, 400),
            stage("PAGE COPY", "Not Started", 0, 0),
        ];
        let under_way = CopyState::UnderWay {
            stage: "FILE COPY".to_owned(),
            bytes: 400,
            of: 1000,
        };
        assert_eq!(judge("In Progress", Alive, "0", "", &copying), under_way);
        // What was so before a restart is not so any more.
        let lost = CopyState::Not {
            begun: true,
            error: None,
        };
        for session in [Gone, BeforeTheStart] {
            assert_eq!(judge("In Progress", session, "0", "", &copying), lost);
        }
        let synced = [
            stage("DROP DATA", "Completed", 0, 0),
            stage("FILE SYNC", "Completed", 0, 0),
            stage("RESTART", "Not Started", 0, 0),
        ];
        for session in [Alive, Gone] {
            let now = judge("In Progress", session, "0", "", &synced);
            assert_eq!(now, CopyState::Ending);
        }
        // It was started again since, and has no copy.
        assert_eq!(judge("In Progress", BeforeTheStart, "0", "", &synced), lost);
        // An earlier one came, and this one has not begun.
        let earlier = CopyState::Not {
            begun: false,
            error: None,
        };
        let completed = [stage("DROP DATA", "Completed", 0, 0)];
        assert_eq!(
            judge("Completed", BeforeTheStart, "0", "", &completed),
            earlier
        );
        let refused = CopyState::Not {
            begun: false,
            error: Some("no such host (MySQL error 3862)".to_owned()),
        };
        let never = [stage("DROP DATA", "Not Started", 0, 0)];
        assert_eq!(
            judge("Failed", Gone, "3862", "no such host", &never),
            refused
        );
        assert_eq!(
            judge("", BeforeTheStart, "", "", &[]),
            CopyState::Not {
                begun: false,
                error: None
            }
        );
    }
}
