//! Events of a schema (`CREATE EVENT`), which run on the primary and on no follower.
//!
//! mysqld starts with `event_scheduler` off, and the scheduler stays off while mysqld follows. The command line (mode `child`) and a
//! persisted value, which takes precedence, ensure this. Opening the primary for writes switches the scheduler on, if it was configured to
//! be on. Until then `super_read_only` is on, so that a scheduler switched on by an operator executes nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use applier::events::{NamedEvent, OVER, listed};
use mysql_link::{ConnectOptions, Connection, LinkError};
use serde::{Deserialize, Serialize};
use spilling_bytes::long_work;
use tokio::sync::OnceCell;
use tracing::{info, warn};

use crate::binlog_place::named;
use crate::durable_file;
use crate::supervisor::ServerCommand;

const FILE: &str = "mysqld-events.json";

/// Switches `event_scheduler` on and off as the role of mysqld changes; clones share the record.
#[derive(Debug, Clone)]
pub struct EventScheduler(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    key: EventsWanted,
    file: PathBuf,
    /// The command with which the member starts the server; `None` where another program starts it.
    command: Option<ServerCommand>,
    options: OnceCell<Option<bool>>,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    found: Option<FoundScheduler>,
    /// True if a failure to persist the value was logged.
    told: bool,
    /// True if the scheduler was off when a follower was last observed.
    off_at_follower: bool,
}

impl EventScheduler {
    /// Creates a switch for the server of the member with this data directory. `command` starts the server if the member does so itself.
    ///
    /// # Errors
    /// When the record of the server's configuration cannot be read.
    pub fn new(
        member_dir: &Path,
        key: EventsWanted,
        command: Option<ServerCommand>,
    ) -> io::Result<Self> {
        let file = member_dir.join(FILE);
        let found: Option<Option<FoundScheduler>> = durable_file::load(&file)?;
        let memory = Memory {
            found: found.flatten(),
            ..Memory::default()
        };
        Ok(Self(Arc::new(Inner {
            key,
            file,
            command,
            options: OnceCell::new(),
            memory: Mutex::new(memory),
        })))
    }

    /// Observes the server: records the operator's configuration, then makes the next start begin with the scheduler off. With `follows`,
    /// only the applier writes to the server, so events must not run now and the scheduler is switched off.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn look(&self, connection: &mut Connection, follows: bool) -> Result<(), LinkError> {
        let seen = seen(connection).await?;
        // This call runs a program, so it is done before the opening, which clients wait for.
        self.options().await;
        let starts_off = self.0.command.is_some();
        let before = self.memory().found;
        let found = seen.found(before, starts_off);
        if found != before {
            let file = self.0.file.clone();
            let stored = long_work::on_disk(move || durable_file::store(&file, &found));
            if let Err(error) = stored.await {
                warn!("what event_scheduler is configured to cannot be written down: {error}");
                return Ok(());
            }
            self.memory().found = found;
        }
        if seen.may_start_on(starts_off) {
            // The running value does not change with this statement.
            let persist_off = "SET PERSIST_ONLY event_scheduler = OFF";
            match connection.execute(persist_off).await {
                Ok(_) => info!(
                    "event_scheduler is persisted as OFF, so that mysqld runs no event before the member knows what it is"
                ),
                Err(LinkError::Server(error)) => {
                    if !std::mem::replace(&mut self.memory().told, true) {
                        warn!(
                            "event_scheduler cannot be persisted as OFF, put it into mysqld's option file: {error}"
                        );
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let running = seen.running.eq_ignore_ascii_case("ON");
        // A server that was the primary until now still has the scheduler on.
        let off = follows && !running;
        let was_off = std::mem::replace(&mut self.memory().off_at_follower, off);
        if follows && running {
            if was_off {
                warn!(
                    "event_scheduler was switched on at a follower, where no event may run; it is switched off again"
                );
            }
            connection
                .execute("SET GLOBAL event_scheduler = OFF")
                .await?;
        }
        Ok(())
    }

    /// True if events should run on the primary.
    pub async fn wanted(&self) -> bool {
        let options = self.options().await;
        wanted(self.0.key, self.memory().found, options)
    }

    /// The value in the server's start options.
    async fn options(&self) -> Option<bool> {
        *self.0.options.get_or_init(|| self.configured()).await
    }

    async fn configured(&self) -> Option<bool> {
        let command = self.0.command.as_ref()?;
        match command.options_in_force().await {
            Ok(options) => of_options(options.iter().map(String::as_str)),
            Err(cause) => {
                warn!("what event_scheduler is in mysqld's option files is not known: {cause}");
                None
            }
        }
    }

    /// Restores the configured scheduler value when the server leaves the ring as a primary.
    ///
    /// # Errors
    /// When the server refuses a statement.
    pub async fn give_back(&self, connect: &ConnectOptions) -> Result<(), LinkError> {
        let on = if self.wanted().await { "ON" } else { "OFF" };
        let mut connection = Connection::open_with_own_settings(connect).await?;
        let persisted = self.memory().found.is_some_and(|found| found.persisted);
        let persist = match (persisted, &self.0.command) {
            (true, _) => Some(format!("SET PERSIST_ONLY event_scheduler = {on}")),
            (false, None) => Some("RESET PERSIST IF EXISTS event_scheduler".to_owned()),
            (false, Some(_)) => None,
        };
        if let Some(persist) = persist {
            connection.execute(persist).await?;
        }
        switch(&mut connection, on).await?;
        connection.close().await;
        Ok(())
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn seen(connection: &mut Connection) -> Result<SchedulerSeen, LinkError> {
    let running = "SELECT @@GLOBAL.event_scheduler";
    let persisted = "SELECT @@GLOBAL.event_scheduler, (SELECT variable_value FROM \
         performance_schema.persisted_variables WHERE variable_name = 'event_scheduler')";
    let answer = match connection.query(persisted).await {
        // The account lacks the privilege to read persisted values.
        Err(LinkError::Server(_)) => connection.query(running).await?,
        answer => answer?,
    };
    let text = |place| answer.first().and_then(|row| row.text_at(place));
    Ok(SchedulerSeen {
        running: text(0).unwrap_or_default().to_owned(),
        persisted: text(1).map(str::to_owned),
    })
}

/// Switches the scheduler, unless a start option disabled it.
async fn switch(connection: &mut Connection, to: &str) -> Result<(), LinkError> {
    if seen(connection).await?.is_disabled() {
        return Ok(());
    }
    let set = format!("SET GLOBAL event_scheduler = {to}");
    connection.execute(&set).await.map(drop)
}

/// Prevents further events from starting. A running event continues until it writes.
///
/// # Errors
/// When the connection fails.
pub async fn stop_events(connection: &mut Connection) -> Result<(), LinkError> {
    switch(connection, "OFF").await
}

// Two kinds of events are altered on a primary. The statements are ordinary transactions there.
//
// * Events that its own replica threads received and stored as `REPLICA_SIDE_DISABLED`. They are enabled once the primary is open, as after
//   a manual promotion. Replica threads on other servers store them as disabled there.
// * Preserved one-time events in the past (`ON COMPLETION PRESERVE`). The server that ran such an event disables it without a log entry, so
//   a former follower would run the event again as the primary. The event is disabled before the scheduler is switched on. The member
//   cannot detect an event that never ran for lack of a primary: a logged skip is better than a second run.

/// Returns the events that the scheduler would run a second time; none where the account lacks the privilege to list them.
///
/// # Errors
/// When the connection fails.
pub async fn events_that_are_over(connect: &ConnectOptions) -> Result<Vec<NamedEvent>, LinkError> {
    let mut connection = Connection::open_with_own_settings(connect).await?;
    let events = applier::events::events_that_are_over(&mut connection).await?;
    connection.close().await;
    Ok(events)
}

/// Enables events that came through replication, on an open primary. Events that were disabled for replicas on this server stay disabled.
/// An event that cannot be enabled does not block the others.
///
/// # Errors
/// When the connection fails; a retry continues where it stopped.
pub async fn enable_replicated(connect: &ConnectOptions) -> Result<(), LinkError> {
    let replicated = format!(
        "status IN ('REPLICA_SIDE_DISABLED', 'SLAVESIDE_DISABLED') AND originator <> @@GLOBAL.server_id AND NOT ({OVER})"
    );
    let mut connection = Connection::open_with_own_settings(connect).await?;
    for event in listed(&mut connection, &replicated).await? {
        match connection.execute(event.altered("ENABLE")).await {
            Ok(_) => {
                info!(schema = %event.schema, event = %event.name, "an event that came by replication runs here now")
            }
            Err(LinkError::Server(error)) => {
                warn!(schema = %event.schema, event = %event.name, "an event that came by replication cannot be enabled: {error}");
            }
            Err(error) => return Err(error),
        }
    }
    connection.close().await;
    Ok(())
}

// True if events run on the primary: the operator's choice. Pure. Its sources are the member's configuration, values persisted or found on
// the server, and the server's start options.

/// The member's configuration (`mysql.event_scheduler`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EventsWanted {
    /// Events run as mysqld's own configuration says.
    #[default]
    AsMysqld,
    /// Events run while this mysqld is the primary.
    Yes,
    /// Events never run.
    No,
}

/// The server's configuration before the member switched its scheduler off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FoundScheduler {
    /// True if events ran.
    pub(crate) on: bool,
    /// True if that value was persisted (`SET PERSIST`).
    pub(crate) persisted: bool,
}

/// One observation of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SchedulerSeen {
    /// `@@GLOBAL.event_scheduler`.
    pub(super) running: String,
    /// The persisted value, if there is one.
    pub(super) persisted: Option<String>,
}

impl SchedulerSeen {
    /// True if the scheduler cannot be switched because a start option disabled it.
    pub(super) fn is_disabled(&self) -> bool {
        self.running.eq_ignore_ascii_case("DISABLED")
    }

    /// Returns the record after this observation. With `starts_off`, the member starts the server with the scheduler off, so the running
    /// value does not show the operator's choice.
    pub(super) fn found(
        &self,
        on_record: Option<FoundScheduler>,
        starts_off: bool,
    ) -> Option<FoundScheduler> {
        let found = |on, persisted| Some(FoundScheduler { on, persisted });
        match (self.persisted.as_deref().map(is_on), on_record) {
            // Only an operator persists ON.
            (Some(true), _) => found(true, true),
            // The member persisted OFF, if a record exists.
            (_, Some(known)) => Some(known),
            (Some(false), None) => found(false, true),
            (None, None) if starts_off => None,
            (None, None) => found(is_on(&self.running), false),
        }
    }

    /// True if the next start begins with the scheduler on unless OFF is persisted.
    pub(super) fn may_start_on(&self, starts_off: bool) -> bool {
        match self.persisted.as_deref().map(is_on) {
            Some(on) => on,
            None => !starts_off && !self.is_disabled(),
        }
    }
}

/// True if events should run on the primary. `options` is the value in the start options.
pub(super) fn wanted(
    key: EventsWanted,
    on_record: Option<FoundScheduler>,
    options: Option<bool>,
) -> bool {
    match (key, on_record, options) {
        (EventsWanted::Yes, ..) => true,
        (EventsWanted::No, ..) => false,
        (EventsWanted::AsMysqld, Some(found), _) => found.on,
        (EventsWanted::AsMysqld, None, Some(on)) => on,
        // mysqld's own default since 8.0.
        (EventsWanted::AsMysqld, None, None) => true,
    }
}

/// Returns the value in the start options, of which the last one wins.
pub(super) fn of_options<'a>(options: impl IntoIterator<Item = &'a str>) -> Option<bool> {
    let on = named(options).filter_map(|(name, value)| match name.as_str() {
        "event-scheduler" | "enable-event-scheduler" => Some(value.is_none_or(is_on)),
        "skip-event-scheduler" | "disable-event-scheduler" => Some(false),
        _ => None,
    });
    on.last()
}

fn is_on(value: &str) -> bool {
    ["ON", "1", "TRUE"].contains(&value.to_ascii_uppercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(on: bool, persisted: bool) -> Option<FoundScheduler> {
        Some(FoundScheduler { on, persisted })
    }

    #[test]
    fn what_an_operator_wants_is_kept_through_the_members_own_switching() {
        // Columns: running value, persisted value, record, whether the member starts it off; then the new record, and whether a start may
        // begin with the scheduler on.
        let table = [
            // Mode `child`: the command line sets OFF, so the running value shows nothing.
            ("OFF", None, None, true, None, false),
            ("ON", None, None, true, None, false),
            ("OFF", Some("ON"), None, true, found(true, true), true),
            ("OFF", Some("OFF"), None, true, found(false, true), false),
            (
                "OFF",
                Some("OFF"),
                found(true, true),
                true,
                found(true, true),
                false,
            ),
            // An operator persisted ON while the ring existed.
            (
                "ON",
                Some("ON"),
                found(false, true),
                true,
                found(true, true),
                true,
            ),
            // The mysqld was started by another program.
            ("ON", None, None, false, found(true, false), true),
            ("OFF", None, None, false, found(false, false), true),
            ("DISABLED", None, None, false, found(false, false), false),
            // The member persisted OFF after a record existed.
            (
                "OFF",
                Some("OFF"),
                found(true, false),
                false,
                found(true, false),
                false,
            ),
            (
                "OFF",
                None,
                found(true, false),
                false,
                found(true, false),
                true,
            ),
        ];
        for (running, persisted, on_record, starts_off, expected, may_start_on) in table {
            let seen = SchedulerSeen {
                running: running.to_owned(),
                persisted: persisted.map(str::to_owned),
            };
            let after = seen.found(on_record, starts_off);
            assert_eq!(after, expected, "{seen:?} {on_record:?}");
            assert_eq!(seen.may_start_on(starts_off), may_start_on, "{seen:?}");
        }
    }

    #[test]
    fn the_members_key_wins_then_the_server_then_its_options() {
        use EventsWanted::AsMysqld;
        use EventsWanted::No;
        use EventsWanted::Yes;
        let table = [
            (Yes, found(false, true), Some(false), true),
            (No, found(true, true), Some(true), false),
            (AsMysqld, found(false, true), Some(true), false),
            (AsMysqld, None, Some(false), false),
            (AsMysqld, None, None, true),
        ];
        for (key, on_record, options, expected) in table {
            assert_eq!(wanted(key, on_record, options), expected, "{key:?}");
        }
    }

    #[test]
    fn options_are_read_as_mysqld_reads_them() {
        let table: [(&[&str], Option<bool>); 8] = [
            (&["--port=1"], None),
            (&["--event-scheduler"], Some(true)),
            (&["--event_scheduler=on"], Some(true)),
            (
                &["--event-scheduler=1", "--event-scheduler=OFF"],
                Some(false),
            ),
            (&["--loose-event-scheduler=DISABLED"], Some(false)),
            (&["--skip-event-scheduler"], Some(false)),
            (&["--event-scheduler=0"], Some(false)),
            (&["event-scheduler=ON"], None),
        ];
        for (options, expected) in table {
            assert_eq!(of_options(options.iter().copied()), expected, "{options:?}");
        }
    }
}
