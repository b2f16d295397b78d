//! Clones another server's data: `CLONE INSTANCE FROM`, its status tables, and its persistent state.
//!
//! ```text
//!  refused ─ no data was changed          DROP DATA ─ removes rows, GTIDs and binlog; accounts stay
//!                                         FILE COPY ─ takes some time; if it is interrupted, the server has no rows
//!                                         FILE SYNC ─ the donor's data has arrived; the server ends, and adopts it at its next start
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::answers::{Rows, SqlError, code};
use crate::engine::Engine;
use crate::options::{Account, Rights};
use crate::process::Mysqld;
use crate::replica::SourceSettings;
use crate::server::Server;
use crate::sessions::{Session, SessionId, Work};
use crate::statement::CopyRequest;

/// Interval at which the recipient checks the donor. A real recipient tries for minutes to reach a lost donor; this one fails immediately.
const LOOK: Duration = Duration::from_millis(100);
/// Total size of a server's files in bytes, as the status tables report it.
pub(crate) const FILES: u64 = 73_635_949;
/// The stages of a clone, in order.
const STAGES: [&str; 7] = [
    "DROP DATA",
    "FILE COPY",
    "PAGE COPY",
    "REDO COPY",
    "FILE SYNC",
    "RESTART",
    "RECOVERY",
];
/// Number of stages that begin after the end of the process.
const BEHIND_THE_END: usize = 2;

/// A running clone, at the recipient.
#[derive(Debug)]
pub(crate) struct Copy {
    request: CopyRequest,
    /// The donor's start number when the clone began.
    start: u64,
    _lent: Lent,
    takes: Duration,
    ends: Duration,
    /// When the recipient checks the donor next.
    pub(crate) looks: Duration,
}

/// Counts as a running clone at the donor, until it is dropped.
#[derive(Debug)]
struct Lent(Arc<AtomicU32>);

impl Lent {
    fn by(count: Arc<AtomicU32>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The data of a donor.
#[derive(Debug)]
pub(crate) struct Arrived {
    engine: Engine,
    accounts: Vec<Account>,
    plugin: bool,
    channel: Option<(String, SourceSettings)>,
}

/// The last clone, as `performance_schema` reports it. The report survives the process.
#[derive(Debug, Default)]
pub(crate) struct CopyReport {
    state: &'static str,
    /// The session that runs the clone; 0 after a restart.
    session: SessionId,
    error: Option<SqlError>,
    /// The state of each stage. Empty if the donor was unreachable.
    stages: Vec<&'static str>,
    bytes: u64,
}

impl CopyReport {
    fn of(session: SessionId) -> Self {
        Self {
            state: "In Progress",
            session,
            ..Self::default()
        }
    }

    fn fail(&mut self, error: SqlError) {
        self.state = "Failed";
        self.fail_stage();
        self.error = Some(error);
    }

    fn fail_stage(&mut self) {
        for stage in &mut self.stages {
            if *stage == "In Progress" {
                *stage = "Failed";
            }
        }
    }

    /// Marks the stages before stage `number` as completed, and this stage as begun.
    fn continues_to(&mut self, number: usize) {
        self.stages = (0..STAGES.len())
            .map(|stage| match stage.cmp(&number) {
                std::cmp::Ordering::Less => "Completed",
                std::cmp::Ordering::Equal => "In Progress",
                std::cmp::Ordering::Greater => "Not Started",
            })
            .collect();
    }

    fn completes(&mut self, stages: usize) {
        self.continues_to(stages);
        if let Some(next) = self.stages.get_mut(stages) {
            *next = "Not Started";
        }
        self.bytes = FILES;
    }
}

/// The state of the donor, as the recipient sees it.
enum Donor {
    Copies(Mysqld, u64),
    StandsStill,
    Refuses(String),
}

impl Server {
    pub(crate) fn begin_copy(&mut self, id: SessionId, request: CopyRequest) {
        let now = self.now();
        if let Err(error) = self.may_copy(&request) {
            return self.finish(id, Err(error));
        }
        let mut report = CopyReport::of(id);
        let start = match self.donor(&request) {
            Donor::Copies(donor, _) if donor.peek(Server::is_busy_with_a_copy) => {
                let SqlError { code, message } = too_many();
                Err(of_donor(&format!("{code} : {message}")))
            }
            Donor::Copies(..) if self.is_busy_with_a_copy() => Err(too_many()),
            Donor::Copies(donor, start) => {
                let lent = donor.peek(|server| Arc::clone(&server.lent));
                Ok((start, Lent::by(lent)))
            }
            Donor::StandsStill => Err(of_donor("Connect failed: 2013 : Lost connection")),
            Donor::Refuses(why) => Err(of_donor(&why)),
        };
        let start = start.and_then(|start| {
            report.continues_to(0);
            let closed = self.running.as_ref().map(|running| running.super_read_only);
            match closed {
                Some(false) => Ok(start),
                _ => Err(SqlError::read_only("--super-read-only")),
            }
        });
        match start {
            Err(error) => {
                report.fail(error.clone());
                self.finish(id, Err(error));
            }
            Ok((start, lent)) => {
                report.continues_to(1);
                self.drop_data();
                let takes = self.options.copy_takes;
                let copy = Copy {
                    request,
                    start,
                    _lent: lent,
                    takes,
                    ends: now + takes,
                    looks: now + LOOK.min(takes),
                };
                self.set_work(id, Work::Copy(copy));
                self.changed();
            }
        }
        self.copy_report = Some(report);
    }

    /// Checks a clone request. A refusal has no effect on the data.
    fn may_copy(&self, request: &CopyRequest) -> Result<(), SqlError> {
        let Some(running) = &self.running else {
            return Err(SqlError::lost());
        };
        if !self.clone_plugin {
            let message = "Plugin 'clone' is not loaded";
            return Err(SqlError::new(1524, message));
        }
        let donor = format!("{}:{}", request.host, request.port);
        let donors = running.variables.selected("clone_valid_donor_list")?;
        if !donors.split(',').any(|one| one == donor) {
            let message = format!(
                "Clone system configuration: {donor} is not found in clone_valid_donor_list: {donors}"
            );
            return Err(SqlError::new(3869, message));
        }
        if self.copying().is_some() {
            return Err(too_many());
        }
        Ok(())
    }

    fn donor(&self, request: &CopyRequest) -> Donor {
        let unreachable = || {
            let CopyRequest { host, port, .. } = request;
            Donor::Refuses(format!(
                "Connect failed: 2003 : Can't connect to MySQL server on '{host}:{port}' (111)."
            ))
        };
        let Some(donor) = (self.options.donors)(&request.host, request.port) else {
            return unreachable();
        };
        let state = donor.peek(|server| {
            let running = server.running.as_ref()?;
            if running.stopping.is_some() {
                return None;
            }
            Some((
                server.paused,
                server.starts,
                server.is_donor_to(&request.user, &request.password),
            ))
        });
        match state {
            None => unreachable(),
            Some((true, ..)) => Donor::StandsStill,
            Some((false, _, Err(why))) => Donor::Refuses(why),
            Some((false, start, Ok(()))) => Donor::Copies(donor, start),
        }
    }

    fn is_donor_to(&self, user: &str, password: &str) -> Result<(), String> {
        let account = self.account(user);
        let account = account.filter(|account| account.password == password);
        match account.map(|account| account.rights) {
            None => Err(format!(
                "Connect failed: 1045 : Access denied for user '{user}'@'localhost' (using password: YES)."
            )),
            Some(_) if !self.clone_plugin => Err("1524 : Plugin 'clone' is not loaded.".to_owned()),
            Some(Rights::Login | Rights::Client) => {
                let lacks = SqlError::lacks("BACKUP_ADMIN");
                Err(format!("{} : {}.", lacks.code, lacks.message))
            }
            Some(Rights::All | Rights::Member | Rights::Backup) => Ok(()),
        }
    }

    /// Removes rows, GTIDs and binlog. Accounts and settings stay.
    fn drop_data(&mut self) {
        let seconds = self.epoch_seconds();
        self.engine = Engine::without_data();
        let Some(running) = &mut self.running else {
            return;
        };
        running.executed = Default::default();
        running.commits.forget_acks();
        for session in running.sessions.values_mut() {
            session.gone |= session.dump.is_some();
        }
        // The server ends, as with `binlog_error_action = ABORT_SERVER`.
        if running.binlog.reset(seconds).is_err() {
            self.running = None;
        }
    }

    pub(crate) fn advance_copy(&mut self, id: SessionId) {
        let now = self.now();
        let Some(copy) = self.copy(id).filter(|copy| now >= copy.looks) else {
            return;
        };
        let (request, start) = (copy.request.clone(), copy.start);
        let donor = self.donor(&request);
        let Some(copy) = self.copy(id) else {
            return;
        };
        match donor {
            Donor::StandsStill => {
                copy.ends += now + LOOK - copy.looks;
                copy.looks = now + LOOK;
            }
            Donor::Copies(donor, of) if of == start => {
                if now >= copy.ends {
                    return self.data_have_come(id, &donor);
                }
                copy.looks = copy.ends.min(now + LOOK);
                let part = 1.0 - (copy.ends - now).as_secs_f64() / copy.takes.as_secs_f64();
                if let Some(report) = &mut self.copy_report {
                    report.bytes = (FILES as f64 * part.clamp(0.0, 1.0)) as u64;
                }
            }
            Donor::Copies(..) => {
                let why =
                    "1815 : Internal error: Innodb Clone Restart could not find existing clone.";
                self.fail_copy(id, of_donor(why));
            }
            Donor::Refuses(why) => self.fail_copy(id, of_donor(&why)),
        }
    }

    fn copy(&mut self, id: SessionId) -> Option<&mut Copy> {
        match &mut self.session(id)?.work {
            Work::Copy(copy) => Some(copy),
            _ => None,
        }
    }

    fn fail_copy(&mut self, id: SessionId, error: SqlError) {
        if let Some(report) = &mut self.copy_report {
            report.fail(error.clone());
        }
        self.finish(id, Err(error));
    }

    /// Returns whether the server takes part in a clone, as recipient or as donor. Only one clone may run.
    fn is_busy_with_a_copy(&self) -> bool {
        self.copying().is_some() || self.lent.load(Ordering::Relaxed) > 0
    }

    /// Returns the session that runs a clone.
    pub(crate) fn copying(&self) -> Option<SessionId> {
        let copies = |(id, session): (&SessionId, &Session)| {
            matches!(session.work, Work::Copy(_)).then_some(*id)
        };
        self.running.as_ref()?.sessions.iter().find_map(copies)
    }

    /// Ends a running clone, because the server stops or the session was killed.
    pub(crate) fn interrupt_copy(&mut self) {
        if let Some(id) = self.copying() {
            let message = "Query execution was interrupted";
            self.fail_copy(id, SqlError::new(code::QUERY_INTERRUPTED, message));
        }
    }

    /// Completes the transfer: stores the donor's data for the next start, and ends the server. A server under a supervisor would restart
    /// itself.
    fn data_have_come(&mut self, id: SessionId, donor: &Mysqld) {
        self.arrived = Some(donor.peek(|server| {
            let executed = server.running.as_ref();
            let executed = executed.map(|running| running.executed.clone());
            let channel = server.channel.as_ref();
            Arrived {
                engine: server.engine.committed(executed.unwrap_or_default()),
                accounts: server.accounts.clone(),
                plugin: server.clone_plugin,
                channel: channel.map(|channel| (channel.name.clone(), channel.source.clone())),
            }
        }));
        if let Some(report) = &mut self.copy_report {
            report.completes(STAGES.len() - BEHIND_THE_END);
        }
        let message = "Restart server failed (mysqld is not managed by supervisor process).";
        self.finish(id, Err(SqlError::new(code::RESTART_FAILED, message)));
        self.begin_stop();
    }

    /// Adopts the data of a completed transfer at the start of the server.
    pub(crate) fn take_in_what_has_come(&mut self) {
        let arrived = self.arrived.take();
        if let Some(report) = &mut self.copy_report {
            match &arrived {
                Some(_) => {
                    report.state = "Completed";
                    report.completes(STAGES.len());
                }
                None if report.state == "In Progress" => {
                    report.fail_stage();
                    let message = "Query execution was interrupted";
                    report.error = Some(SqlError::new(code::QUERY_INTERRUPTED, message));
                }
                None => {}
            }
            report.session = 0;
        }
        if let Some(arrived) = arrived {
            self.engine = arrived.engine;
            self.accounts = arrived.accounts;
            self.clone_plugin = arrived.plugin;
            self.put_channel(arrived.channel);
        }
    }

    // Status tables.

    /// Returns the state, the error number and message, and whether the session of the clone exists.
    pub(crate) fn copy_status(&self) -> Result<Rows, SqlError> {
        let rows = Rows::of(&["state", "error_no", "error_message", "alive", "pid"]);
        let Some(report) = self.report("clone_status")? else {
            return Ok(rows);
        };
        let sessions = self.running.as_ref().map(|running| &running.sessions);
        let alive = sessions.is_some_and(|sessions| sessions.contains_key(&report.session));
        let error = report.error.as_ref();
        Ok(rows.row([
            report.state.to_owned(),
            error.map_or(0, |error| error.code).to_string(),
            error.map_or_else(String::new, |error| error.message.clone()),
            u8::from(alive).to_string(),
            report.session.to_string(),
        ]))
    }

    pub(crate) fn copy_stages(&self) -> Result<Rows, SqlError> {
        let rows = Rows::of(&["stage", "state", "estimate", "data"]);
        let Some(report) = self.report("clone_progress")? else {
            return Ok(rows);
        };
        let stages = STAGES.iter().zip(&report.stages);
        Ok(stages.fold(rows, |rows, (stage, state)| {
            let (estimate, data) = match (*stage, *state) {
                ("FILE COPY", "Not Started") => (0, 0),
                ("FILE COPY", _) => (FILES, report.bytes),
                _ => (0, 0),
            };
            rows.row([
                (*stage).to_owned(),
                (*state).to_owned(),
                estimate.to_string(),
                data.to_string(),
            ])
        }))
    }

    fn report(&self, table: &str) -> Result<Option<&CopyReport>, SqlError> {
        if !self.clone_plugin {
            let message = format!("Table 'performance_schema.{table}' doesn't exist");
            return Err(SqlError::new(code::NO_SUCH_TABLE, message));
        }
        Ok(self.copy_report.as_ref())
    }
}

fn too_many() -> SqlError {
    let message = "Too many concurrent clone operations. Maximum allowed - 1.";
    SqlError::new(3634, message)
}

fn of_donor(why: &str) -> SqlError {
    SqlError::new(3862, format!("Clone Donor Error: {why}"))
}
