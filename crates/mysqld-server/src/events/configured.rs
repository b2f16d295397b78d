//! The operator's choice whether events run at the primary, pure. Sources: the member's configuration, values persisted or found on the
//! server, and its start options.

use serde::{Deserialize, Serialize};

/// The member's configuration (`mysql.event_scheduler`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EventsWanted {
    /// As mysqld is configured.
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
    /// Whether events were to run.
    pub(crate) on: bool,
    /// Whether that was persisted (`SET PERSIST`).
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
    /// Whether it cannot be switched, because a start option disabled it.
    pub(super) fn is_disabled(&self) -> bool {
        self.running.eq_ignore_ascii_case("DISABLED")
    }

    /// The record after this observation. `starts_off`: the member starts the server with its scheduler off, so that the running value does
    /// not show the operator's.
    pub(super) fn found(
        &self,
        on_record: Option<FoundScheduler>,
        starts_off: bool,
    ) -> Option<FoundScheduler> {
        let persisted = self.persisted.as_deref().map(is_on);
        match (persisted, on_record) {
            // Only an operator persists that.
            (Some(true), _) => Some(FoundScheduler {
                on: true,
                persisted: true,
            }),
            // The member set it, if there is a record.
            (_, Some(known)) => Some(known),
            (Some(false), None) => Some(FoundScheduler {
                on: false,
                persisted: true,
            }),
            (None, None) if starts_off => None,
            (None, None) => Some(FoundScheduler {
                on: is_on(&self.running),
                persisted: false,
            }),
        }
    }

    /// Whether the next start would begin with the scheduler on, unless it is persisted as off.
    pub(super) fn may_start_on(&self, starts_off: bool) -> bool {
        match self.persisted.as_deref().map(is_on) {
            Some(on) => on,
            None => !starts_off && !self.is_disabled(),
        }
    }
}

/// Whether events are to run at the primary. `options` is the value in the start options.
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
        // mysqld's own default, since 8.0.
        (EventsWanted::AsMysqld, None, None) => true,
    }
}

/// The value in the start options, of which the last one wins.
pub(super) fn of_options<'a>(options: impl IntoIterator<Item = &'a str>) -> Option<bool> {
    let mut on = None;
    for option in options {
        let Some(option) = option.strip_prefix("--") else {
            continue;
        };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, value),
            None => (option, "ON"),
        };
        let name = name.replace('_', "-");
        match name.strip_prefix("loose-").unwrap_or(&name) {
            "event-scheduler" | "enable-event-scheduler" => on = Some(is_on(value)),
            "skip-event-scheduler" | "disable-event-scheduler" => on = Some(false),
            _ => {}
        }
    }
    on
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
        // Running, persisted, recorded, started off by the member; then the record, and whether a start may begin with it on.
        let table = [
            // Mode `child`: the command line sets it off, so the running value shows nothing.
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
            // Persisted again while the ring exists.
            (
                "ON",
                Some("ON"),
                found(false, true),
                true,
                found(true, true),
                true,
            ),
            // Started by another process.
            ("ON", None, None, false, found(true, false), true),
            ("OFF", None, None, false, found(false, false), true),
            ("DISABLED", None, None, false, found(false, false), false),
            // The member's own off, after there is a record.
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
