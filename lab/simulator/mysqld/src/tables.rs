//! The readable state of a server: variables, counters, sessions, and the `performance_schema` tables that members read.

use std::collections::BTreeMap;

use crate::answers::{Answer, Rows, SqlError};
use crate::binlog::file_name;
use crate::options::Rights;
use crate::replica::Receiver;
use crate::server::Server;
use crate::sessions::{Session, SessionId, Work};
use crate::statement::{Filter, Look};

/// Number of workers of the replica's applier, `replica_parallel_workers`.
const WORKERS: usize = 4;
/// The columns of a query for sessions that hold a lock.
const HOLDER: &str =
    "PROCESSLIST_ID PROCESSLIST_TIME PROCESSLIST_USER PROCESSLIST_HOST OBJECT_TYPE";

impl Server {
    /// Returns the value of a variable as SELECT returns it. Some values are computed.
    pub(crate) fn variable(&self, id: SessionId, name: &str) -> Result<String, SqlError> {
        let Some(running) = &self.running else {
            return Err(SqlError::lost());
        };
        Ok(match name {
            "gtid_executed" => running.executed.to_string(),
            "gtid_purged" => running.binlog.purged().to_string(),
            "gtid_owned" => self.owned(),
            "lock_wait_timeout" => {
                let own = running.sessions.get(&id);
                return match own {
                    Some(session) => Ok(session.lock_wait.to_string()),
                    None => running.variables.selected(name),
                };
            }
            _ => return running.variables.selected(name),
        })
    }

    fn owned(&self) -> String {
        let running = self.running.iter();
        let owned = running.flat_map(|running| running.commits.owned());
        let texts = owned.map(|(gtid, session)| format!("{gtid}#{session}"));
        texts.collect::<Vec<_>>().join(",")
    }

    pub(crate) fn variables_shown(&self, filter: &Filter) -> Rows {
        let rows = Rows::of(&["Variable_name", "Value"]);
        let Some(running) = &self.running else {
            return rows;
        };
        let computed = ["gtid_executed", "gtid_owned", "gtid_purged"];
        let computed = computed.map(|name| (name, self.variable(0, name).unwrap_or_default()));
        let stored = running.variables.shown();
        let stored = stored.map(|(name, value)| (name, value.to_owned()));
        let all: BTreeMap<&str, String> = stored.chain(computed).collect();
        let wanted = all.into_iter().filter(|(name, _)| filter.takes(name));
        rows.rows(wanted.map(|(name, value)| [name.to_owned(), value]))
    }

    pub(crate) fn status_shown(&self, filter: &Filter) -> Rows {
        let rows = Rows::of(&["Variable_name", "Value"]);
        let status = self.status();
        let wanted = status.into_iter().filter(|(name, _)| filter.takes(name));
        rows.rows(wanted.map(|(name, value)| [name.to_owned(), value]))
    }

    fn status(&self) -> BTreeMap<&'static str, String> {
        let Some(running) = &self.running else {
            return BTreeMap::new();
        };
        let sessions = running.sessions.values();
        let clients = sessions.filter(|session| !session.is_replica_thread());
        let mut all = BTreeMap::from([
            ("Threads_connected", clients.count().to_string()),
            ("Uptime", self.uptime().to_string()),
        ]);
        if running.variables.semi_sync_source {
            let on = |on| if on { "ON" } else { "OFF" }.to_owned();
            let waiting = match running.waits_for_acks() {
                true => running.commits.waiting(),
                false => 0,
            };
            let clients = running.semi_sync_clients().to_string();
            all.insert("Rpl_semi_sync_source_clients", clients);
            all.insert("Rpl_semi_sync_source_status", on(running.waits_for_acks()));
            all.insert("Rpl_semi_sync_source_wait_sessions", waiting.to_string());
        }
        all
    }

    /// Returns the uptime: the difference of two times, each truncated to seconds.
    fn uptime(&self) -> u64 {
        let running = self.running.as_ref();
        let started = running.map_or(0, |running| running.started.as_secs());
        self.now().as_secs().saturating_sub(started)
    }

    pub(crate) fn grants(&mut self, id: SessionId) -> Rows {
        let Some(session) = self.session(id) else {
            return Rows::default();
        };
        let user = session.user.clone();
        let rights = session.rights;
        let column = format!("Grants for {user}@%");
        let grants: &[&str] = match rights {
            Rights::All => &["ALL PRIVILEGES ON *.*", "PROXY ON ``@``"],
            Rights::Member => &[
                "RELOAD, PROCESS, REPLICATION SLAVE, REPLICATION CLIENT, CREATE USER, EVENT ON *.*",
                "BACKUP_ADMIN ON *.*",
                "BINLOG_ADMIN,CLONE_ADMIN,CONNECTION_ADMIN,PERSIST_RO_VARIABLES_ADMIN,REPLICATION_SLAVE_ADMIN,\
                 SET_ANY_DEFINER,SYSTEM_VARIABLES_ADMIN ON *.*",
                "SELECT ON `performance_schema`.*",
                "SELECT ON `mysql`.*",
                "INSERT ON `mysql`.`plugin`",
            ],
            Rights::Client => &["SELECT, INSERT, UPDATE, DELETE ON *.*"],
            Rights::Backup => &["BACKUP_ADMIN ON *.*"],
            Rights::Login => &["USAGE ON *.*"],
        };
        Rows::of(&[&column]).rows(grants.iter().map(|grant| {
            let option = match (rights, *grant) {
                (Rights::All, _) | (_, "BACKUP_ADMIN ON *.*") => " WITH GRANT OPTION",
                _ => "",
            };
            [format!("GRANT {grant} TO `{user}`@`%`{option}")]
        }))
    }

    pub(crate) fn processes(&self) -> Rows {
        let mut rows = Rows::named("Id User Host db Command Time State Info");
        let Some(running) = &self.running else {
            return rows;
        };
        if running.variables.is_on("event_scheduler") {
            rows = rows.row([
                "1",
                "event_scheduler",
                "localhost",
                "",
                "Daemon",
                "0",
                "Waiting on empty queue",
                "",
            ]);
        }
        for (id, session) in &running.sessions {
            rows = rows.row([
                Some(id.to_string()),
                Some(session.user.clone()),
                Some("localhost".to_owned()),
                None,
                Some(command(session).to_owned()),
                Some(self.seconds(session).to_string()),
                Some(self.state(*id, session).to_owned()),
                (!session.info.is_empty()).then(|| session.info.clone()),
            ]);
        }
        rows
    }

    fn seconds(&self, session: &Session) -> u64 {
        self.now().saturating_sub(session.since).as_secs()
    }

    fn state(&self, id: SessionId, session: &Session) -> &'static str {
        let group = |running: &crate::server::Running| {
            running.waits_for_acks() && running.commits.is_in_group(id)
        };
        match &session.work {
            _ if session.dump.is_some() => {
                "Source has sent all binlog to replica; waiting for more updates"
            }
            Work::Idle => "",
            Work::Commit if self.running.as_ref().is_some_and(group) => {
                "Waiting for semi-sync ACK from replica"
            }
            Work::Commit => "waiting for handler commit",
            Work::Write(write) if !write.holds_global => "Waiting for global read lock",
            Work::Write(_) => "executing",
            Work::Set(_) => match session.closing() {
                Some(closing) if closing.statements_over => "Waiting for commit lock",
                Some(_) => "Waiting for global read lock",
                None => "",
            },
            Work::Copy(_) => "closing tables",
            Work::FlushLogs | Work::BinlogStatus | Work::StopReplica | Work::Later(_) => "",
        }
    }

    pub(crate) fn binary_logs(&self) -> Rows {
        let rows = Rows::of(&["Log_name", "File_size", "Encrypted"]);
        let Some(running) = &self.running else {
            return rows;
        };
        rows.rows(running.binlog.files.iter().map(|file| {
            let size = running.binlog.size(file.number).to_string();
            [file_name(file.number), size, "No".to_owned()]
        }))
    }

    pub(crate) fn look(&mut self, id: SessionId, look: Look) -> Result<Answer, SqlError> {
        let now = self.now();
        let user = self.session(id).map(|session| session.user.clone());
        let Some(running) = &self.running else {
            return Err(SqlError::lost());
        };
        let one = |column: &str, value: Option<String>| Rows::of(&[column]).row([value]);
        let said = |column: &str, truth: bool| one(column, Some(u8::from(truth).to_string()));
        Ok(Answer::Rows(match look {
            Look::SemiSyncDumps => {
                let sessions = running.sessions.iter();
                let dumps = sessions.filter(|(_, session)| session.is_semi_sync_dump());
                Rows::of(&["id", "uuid"]).rows(dumps.map(|(id, session)| {
                    let uuid = session.dump.as_ref().and_then(|dump| dump.uuid.clone());
                    [Some(id.to_string()), uuid]
                }))
            }
            Look::Committing => {
                let waiting = running.sessions.iter().filter(|(id, session)| {
                    self.state(**id, session) == "waiting for handler commit"
                });
                let mut found: Vec<(u64, SessionId)> = waiting
                    .map(|(id, session)| (self.seconds(session), *id))
                    .collect();
                found.sort_by_key(|(seconds, id)| (std::cmp::Reverse(*seconds), *id));
                let first = found.into_iter().take(20);
                let first = first.map(|(seconds, id)| [u64::from(id), seconds]);
                Rows::of(&["id", "seconds"]).rows(first)
            }
            Look::Committed => Rows::of(&["executed", "bytes"]).row([
                running.executed.to_string(),
                running.binlog.bytes_written.to_string(),
            ]),
            Look::RefusedForRoom => one("refused", Some("0".to_owned())),
            Look::OwnTimer => {
                let picoseconds = now.saturating_sub(running.started).as_nanos() * 1000;
                one("timer_start", Some(picoseconds.to_string()))
            }
            Look::SchedulerPersisted => {
                let value = running.variables.selected("event_scheduler")?;
                let persisted = self.persisted.get("event_scheduler").cloned();
                Rows::of(&["@@GLOBAL.event_scheduler", "persisted"]).row([Some(value), persisted])
            }
            Look::Persisted => {
                let all = self.persisted.iter();
                let all = all.map(|(name, value)| [&name[..], value]);
                Rows::of(&["variable_name", "variable_value"]).rows(all)
            }
            // In the model, passwords never expire.
            Look::PasswordLifetime => one("password_lifetime", Some("0".to_owned())),
            // The model has no grant tables. This is the answer for an account without a password that has its rights from a role.
            Look::StoredAccount => {
                Rows::of(&["password", "no role"]).row([Some(String::new()), Some("0".to_owned())])
            }
            Look::ChannelCount => said("COUNT(*)", self.channel.is_some()),
            Look::ReplicaThreads => self.replica_threads(),
            // In the model, no backup or reader holds a lock. Only members read binlogs, and no other server replicates into a primary.
            Look::HoldersOfApplier
            | Look::HoldersOfBackupLock
            | Look::DumpsOfOthers
            | Look::ForeignChannels => Rows::named(HOLDER),
            Look::HoldersOfGlobalLock => {
                let holds = |(other, session): &(&SessionId, &Session)| {
                    **other != id && session.holds_global() && !session.is_replica_thread()
                };
                let holders = running.sessions.iter().filter(holds);
                Rows::named(HOLDER).rows(holders.map(|(id, session)| {
                    let (id, seconds) = (id.to_string(), self.seconds(session).to_string());
                    let [here, global] = ["localhost", "GLOBAL"].map(str::to_owned);
                    [id, seconds, session.user.clone(), here, global]
                }))
            }
            Look::WhoSetOfflineMode => {
                let by = running.variables.assigned_by("offline_mode");
                said("ours", by.is_some() && by == user.as_deref())
            }
            Look::BootedOpen => {
                let dynamic = running.variables.assigned_by("super_read_only").is_some();
                let closed = running.variables.is_on("super_read_only");
                said("open", !closed && !dynamic)
            }
            Look::Uptime => one("variable_value", Some(self.uptime().to_string())),
            Look::MayShutDown => {
                let accounts = self.accounts.iter();
                let all = accounts.filter(|account| account.rights == Rights::All);
                Rows::of(&["grantee"]).rows(all.map(|account| [format!("'{}'@'%'", account.user)]))
            }
            Look::Events => Rows::of(&["event_schema", "event_name", "definer"]),
            Look::ClonePlugin => said("COUNT(*)", self.clone_plugin),
            Look::ApplierTable => said("COUNT(*)", false),
            // The model has no replication filters, and logs rows.
            Look::GlobalFilters => Rows::of(&["filter_name", "filter_rule"]),
            Look::StatementLogging => Rows::of(&["id", "user"]),
            Look::OtherEngines => Rows::of(&["table"]),
            Look::PreparedXa => Rows::of(&["formatID", "gtrid_length", "bqual_length", "data"]),
            Look::CopyStatus => self.copy_status()?,
            Look::CopyStages => self.copy_stages()?,
            Look::Encrypted => one("encrypted", Some("0".to_owned())),
            Look::DataSize => one("bytes", Some(crate::copying::FILES.to_string())),
            Look::SchemaSizes => {
                let rows = Rows::of(&["schema_name", "bytes"]);
                match self.engine.has_table() {
                    true => rows.row([crate::SCHEMA, "16384"]),
                    false => rows,
                }
            }
            Look::TlsEnabled => one("value", Some("No".to_owned())),
        }))
    }

    fn replica_threads(&self) -> Rows {
        let columns = "receiver service_state last_error_number last_error_message in_hand_ms";
        let rows = Rows::named(columns);
        let Some(channel) = &self.channel else {
            return rows;
        };
        let of = |error: &Option<SqlError>| match error {
            Some(error) => (error.code, error.message.clone()),
            None => (0, String::new()),
        };
        let in_hand = channel.in_hand.map(|since| {
            let now = self.epoch_micros();
            (now.saturating_sub(since) / 1000).to_string()
        });
        let receiver = match channel.receiver {
            Receiver::Off => "OFF",
            Receiver::Connecting => "CONNECTING",
            Receiver::On => "ON",
        };
        let applier = if channel.applies { "ON" } else { "OFF" };
        let worker = of(&channel.applier_error);
        // 1399: a worker has an error.
        let coordinator = if worker.0 == 0 { 0 } else { 1399 };
        let none = None;
        let mut threads = vec![
            ("receiver", receiver, of(&channel.receiver_error), &in_hand),
            ("applier", applier, (coordinator, String::new()), &none),
            ("worker", applier, worker, &in_hand),
        ];
        threads.resize(2 + WORKERS, ("worker", applier, (0, String::new()), &none));
        let threads = threads.into_iter();
        rows.rows(threads.map(|(thread, state, (number, message), in_hand)| {
            let [thread, state] = [thread, state].map(|text| Some(text.to_owned()));
            [
                thread,
                state,
                Some(number.to_string()),
                Some(message),
                in_hand.clone(),
            ]
        }))
    }

    pub(crate) fn replica_status(&self) -> Rows {
        let rows = Rows::named(
            "Channel_Name Source_Host Source_Port Source_User Source_UUID Replica_IO_Running Replica_SQL_Running \
             Last_IO_Error Last_SQL_Error",
        );
        let Some(channel) = &self.channel else {
            return rows;
        };
        let said = |error: &Option<SqlError>| {
            let error = error.as_ref();
            error.map_or_else(String::new, |error| error.message.clone())
        };
        let receives = match channel.receiver {
            Receiver::Off => "No",
            Receiver::Connecting => "Connecting",
            Receiver::On => "Yes",
        };
        rows.row([
            channel.name.clone(),
            channel.source.host.clone(),
            channel.source.port.to_string(),
            channel.source.user.clone(),
            channel.source_uuid.clone(),
            receives.to_owned(),
            if channel.applies { "Yes" } else { "No" }.to_owned(),
            said(&channel.receiver_error),
            said(&channel.applier_error),
        ])
    }
}

fn command(session: &Session) -> &'static str {
    match &session.work {
        _ if session.gone => "Killed",
        _ if session.dump.is_some() => "Binlog Dump GTID",
        Work::Idle => "Sleep",
        _ => "Query",
    }
}
