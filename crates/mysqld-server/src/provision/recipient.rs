//! The recipient's part, while its role is on hold: lists the data that will be lost, copies, and checks the proof of completion.

use std::path::Path;
use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError, Row, literal, server_code};

use crate::binlog_place::BinlogPlace;
use crate::channels::drop_channel;
use crate::provision::donor::{
    CloneAccount, CloneOffer, drop_accounts, has_keyring, has_plugin, install_plugin, parsed,
    reach, value,
};
use crate::provision::{At, ProvisionError};
use crate::sessions::end_clients;
use crate::settings::{StopWaitingError, stop_waiting_for_acks};

/// How often a copy is started again after another session has set `super_read_only`.
const CLOSED_ONCE_MORE: u32 = 3;
/// The longest that a copy may take.
const LONGEST_COPY: Duration = Duration::from_secs(7 * 24 * 3600);

/// Returns the schemas with the approximate bytes of their tables and indexes. Slow on a server with very many tables.
///
/// # Errors
/// [`ProvisionError`].
pub async fn schema_sizes(connect: &ConnectOptions) -> Result<Vec<(String, u64)>, ProvisionError> {
    let mut connection = reach(connect).await?;
    let what = "the sizes of the schemas";
    let sizes = "SELECT s.schema_name, CAST(IFNULL(SUM(t.data_length + t.index_length), 0) AS UNSIGNED) \
         FROM information_schema.schemata s LEFT JOIN information_schema.tables t ON t.table_schema = s.schema_name \
         WHERE s.schema_name NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') \
         GROUP BY s.schema_name ORDER BY s.schema_name";
    let answer = connection.query(sizes).await.at(what)?;
    connection.close().await;
    let schemas = answer.rows.iter().map(|row| {
        let bytes = row.text_at(1).and_then(|bytes| bytes.parse().ok());
        Some((row.text_at(0)?.to_owned(), bytes?))
    });
    let schemas = schemas.collect::<Option<_>>();
    schemas.ok_or(ProvisionError::Answer { what })
}

/// Preparation before a check of the binlog files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeforeALook {
    /// Begin a new file, so that mysqld no longer writes to the existing ones.
    BeginAFile,
    /// Change nothing.
    Nothing,
}

/// Returns the location of a server's binlog files; `None` where it has no binlog.
///
/// # Errors
/// [`ProvisionError`].
pub async fn log_place(
    connect: &ConnectOptions,
    before: BeforeALook,
) -> Result<Option<BinlogPlace>, ProvisionError> {
    let mut connection = reach(connect).await?;
    let what = "where the binlog is";
    if parsed::<u64>(&mut connection, "SELECT @@GLOBAL.log_bin", what).await? == 0 {
        return Ok(None);
    }
    if before == BeforeALook::BeginAFile {
        let flushed = connection.execute("FLUSH BINARY LOGS").await;
        flushed.at("a new binlog file cannot be begun")?;
    }
    let data_dir = value(&mut connection, "SELECT @@GLOBAL.datadir", what).await?;
    let index = value(&mut connection, "SELECT @@GLOBAL.log_bin_index", what).await?;
    connection.close().await;
    let place = BinlogPlace::of_index(data_dir.into(), Path::new(&index));
    Ok(Some(place))
}

/// Prepares a server for its copy while the member applies nothing to it. Stops replica threads that an earlier member process left,
/// installs the plugin, opens the server to administrators only, and stops commits from waiting for the ring. Removes accounts with which
/// others could copy its data, and ends sessions with table locks, which would block the removal of data. Locks of [prepared
/// transactions](super::prepared_transactions) remain.
///
/// # Errors
/// [`ProvisionError`]; the server may be partly prepared, and the next call completes the preparation.
pub async fn make_ready(
    connect: &ConnectOptions,
    host: &str,
    offer: &CloneOffer,
) -> Result<(), ProvisionError> {
    let mut connection = reach(connect).await?;
    let what = "mysqld cannot be made ready for the copy";
    if offer.keyring_needed {
        let has_keyring = has_keyring(&mut connection).await;
        if !has_keyring.at("whether it has a keyring")? {
            return Err(ProvisionError::NoKeyring);
        }
    }
    match stop_waiting_for_acks(&mut connection).await {
        Err(StopWaitingError::CommitsWait(_)) => return Err(ProvisionError::CommitsWait),
        Err(StopWaitingError::Link(error)) => Err(error).at(what)?,
        Ok(()) => {}
    }
    let made = async {
        drop_channel(&mut connection).await?;
        // These accounts could be used from now on to copy incomplete data.
        drop_accounts_of_copies(&mut connection).await?;
        end_clients(&mut connection, |user, _| user != connect.user).await?;
        install_plugin(&mut connection).await?;
        let donor = format!("{host}:{}", offer.port);
        let list = format!("SET GLOBAL clone_valid_donor_list = {}", literal(&donor));
        connection.execute(&list).await
    };
    made.await.at(what)?;
    connection.close().await;
    Ok(())
}

/// Replaces the data with the donor's. mysqld restarts or ends afterwards, so a broken connection or error 3707 also counts as success:
/// [`look`] reports the result.
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
    // The member's write fence may have closed the server again, if its statement began before the hold. mysqld then refuses the copy
    // before it removes anything.
    for _ in 0..CLOSED_ONCE_MORE {
        let mut connection = reach(connect).await?;
        let copied = connection.query_within(&statement, LONGEST_COPY).await;
        match copied {
            Err(LinkError::Server(error)) if error.code == server_code::RESTART_FAILED => {
                return Ok(());
            }
            Err(LinkError::Server(error))
                if error.code == server_code::OPTION_PREVENTS_STATEMENT =>
            {
                tracing::info!(%error, "the copy is begun again: mysqld was closed in between");
                make_ready(connect, host, offer).await?;
            }
            copied => return copied.map(drop).at("the copy ended"),
        }
    }
    Err(ProvisionError::Closed)
}

/// Progress of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopyState {
    /// mysqld does not answer, for this reason.
    Down(String),
    /// The copy is complete: the data are the donor's.
    There,
    /// The copy is in progress.
    UnderWay {
        /// The current stage: `FILE COPY` and the like.
        stage: String,
        /// Bytes copied so far.
        bytes: u64,
        /// Approximate total in bytes.
        of: u64,
    },
    /// All data are copied, and mysqld is about to restart or end. It reports this state until it has ended.
    Ending,
    /// No copy is in progress.
    Not {
        /// True if mysqld has begun to remove its own data.
        begun: bool,
        /// mysqld's report of the last attempt.
        error: Option<String>,
    },
}

/// Checks the progress of the copy that uses this account.
pub async fn look(connect: &ConnectOptions, account: &CloneAccount) -> CopyState {
    let looked = async {
        let mut connection = reach(connect).await?;
        let found = state(&mut connection, account).await;
        let found = found.at("mysqld does not say how far the copy is")?;
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
    if there.value() != Some("0") {
        return Ok(CopyState::There);
    }
    let (begun, error) = (false, None);
    if !has_plugin(connection).await? {
        return Ok(CopyState::Not { begun, error });
    }
    let status = "SELECT s.state, s.error_no, s.error_message, \
         EXISTS (SELECT 1 FROM performance_schema.threads t WHERE t.processlist_id = s.pid), s.pid \
         FROM performance_schema.clone_status s";
    let status = connection.query(status).await?;
    let stages = "SELECT stage, state, IFNULL(estimate, 0), IFNULL(data, 0) FROM performance_schema.clone_progress ORDER BY id";
    let stages = connection.query(stages).await?;
    let stage = |row: &Row| {
        let text = |place| row.text_at(place).unwrap_or_default();
        Stage {
            name: text(0).to_owned(),
            state: text(1).to_owned(),
            estimate: text(2).parse().unwrap_or(0),
            data: text(3).parse().unwrap_or(0),
        }
    };
    let stages: Vec<Stage> = stages.rows.iter().map(stage).collect();
    let row = status.first();
    let text = |place: usize| row.and_then(|row| row.text_at(place)).unwrap_or_default();
    let session = match (text(3), text(4)) {
        ("1", _) => CopySession::Alive,
        (_, "" | "0") => CopySession::BeforeTheStart,
        _ => CopySession::Gone,
    };
    Ok(judge(text(0), session, text(1), text(2), &stages))
}

/// The state of the session that the server's clone tables describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CopySession {
    Alive,
    /// A session of this process.
    Gone,
    /// The session belongs to an earlier process, whose entries the tables keep; or no entry exists.
    BeforeTheStart,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Stage {
    name: String,
    state: String,
    estimate: u64,
    data: u64,
}

/// Evaluates the server's clone tables if the copy is not complete. Pure. mysqld reports "Completed" only after its restart, so that state
/// belongs to an earlier copy. Before the restart, all files are synced, and the session ends shortly before mysqld.
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

/// Removes the accounts that came with a copy.
///
/// # Errors
/// [`ProvisionError`].
pub async fn finish(connect: &ConnectOptions) -> Result<(), ProvisionError> {
    let mut connection = reach(connect).await?;
    let dropped = drop_accounts_of_copies(&mut connection).await;
    dropped.at("the accounts that came with the copy cannot be removed")?;
    connection.close().await;
    Ok(())
}

/// Drops all accounts for copies. Afterwards only administrators can write to the server. Nothing is written to its binlog.
async fn drop_accounts_of_copies(connection: &mut Connection) -> Result<(), LinkError> {
    let open = "SET GLOBAL read_only = ON, GLOBAL super_read_only = OFF";
    connection.execute(open).await?;
    connection.execute("SET SESSION sql_log_bin = 0").await?;
    drop_accounts(connection, &CloneAccount::pattern(None)).await
}

// Prepared XA transactions of a server whose data are about to be removed: they outlive their sessions and a restart. A copy first drops
// each table, and waits for open transactions that have used it, up to `lock_wait_timeout`, a year by default.

/// The server's prepared XA transactions, named in the form of `XA ROLLBACK`.
///
/// # Errors
/// [`ProvisionError`].
pub async fn prepared_transactions(
    connect: &ConnectOptions,
) -> Result<Vec<String>, ProvisionError> {
    let mut connection = reach(connect).await?;
    let prepared = match connection.query("XA RECOVER CONVERT XID").await {
        // The query needs XA_RECOVER_ADMIN, which a restricted account may not have.
        Err(LinkError::Server(error)) => {
            tracing::warn!(%error, "whether XA transactions are prepared is not known; where there are, the copy waits for them: end them with XA RECOVER CONVERT XID and XA ROLLBACK");
            Vec::new()
        }
        prepared => {
            let prepared = prepared.at("which XA transactions are prepared")?;
            prepared.rows.iter().filter_map(name_of).collect()
        }
    };
    connection.close().await;
    Ok(prepared)
}

/// Rolls [prepared transactions](prepared_transactions) back without writing to the binlog. From then on, the server lacks transactions
/// that are in its `gtid_executed`, and must not be used before it has a copy.
/// # Errors
/// [`ProvisionError`]; some transactions may already be rolled back.
pub async fn roll_back_prepared(
    connect: &ConnectOptions,
    prepared: &[String],
) -> Result<(), ProvisionError> {
    let mut connection = reach(connect).await?;
    let done = async {
        connection.execute("SET SESSION sql_log_bin = 0").await?;
        for xid in prepared {
            tracing::warn!(%xid, "a prepared XA transaction is rolled back: the data of this mysqld are replaced");
            let statement = format!("XA ROLLBACK {xid}");
            match connection.execute(&statement).await {
                // A failure is only logged. Another session may have ended the transaction.
                Err(LinkError::Server(error)) => {
                    tracing::warn!(%error, statement, "not done before the data of this mysqld are replaced");
                }
                other => drop(other?),
            }
        }
        Ok::<(), LinkError>(())
    };
    let done = done.await;
    done.at("prepared XA transactions cannot be rolled back")?;
    connection.close().await;
    Ok(())
}

/// Converts a row of `XA RECOVER CONVERT XID` to the form of `XA ROLLBACK`: two hexadecimal texts with given lengths, and a number.
fn name_of(row: &Row) -> Option<String> {
    let number = |place| row.text_at(place)?.parse::<usize>().ok();
    let (format, gtrid, bqual) = (number(0)?, number(1)?, number(2)?);
    let both = row.text_at(3)?.strip_prefix("0x")?;
    let both = both.get(..2 * (gtrid + bqual))?;
    let (gtrid, bqual) = both.split_at_checked(2 * gtrid)?;
    Some(format!("X'{gtrid}', X'{bqual}', {format}"))
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
        // An entry written before a restart is outdated.
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
        // mysqld was restarted since, and has no complete copy.
        assert_eq!(judge("In Progress", BeforeTheStart, "0", "", &synced), lost);
        // An earlier copy completed, and the present one has not begun.
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
