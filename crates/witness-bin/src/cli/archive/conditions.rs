//! Whether a base backup of this server may now be taken: pure decisions from the state of member, mysqld and disk.

use std::time::Duration;

use member::status::MemberView;
use raft_types::RingId;

use crate::terminal::{Attempt, Exit};

/// The server requirements of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The primary is allowed.
    pub(super) on_primary: bool,
    /// Largest lag of a follower behind the ring.
    pub(super) max_lag: Duration,
}

/// Whether the data of a member's mysqld belong to its ring, and may now be copied. Returns the ring.
///
/// # Errors
/// Exit 4 with the reason.
pub(super) fn may_copy(view: &MemberView, wanted: Wanted) -> Attempt<RingId> {
    let Some(ring) = view.ring.id else {
        return Err(Exit::Refused.because(
            "the ring is not bootstrapped, so that nothing is the ring's data",
            "bootstrap it first",
        ));
    };
    let Some(mysql) = &view.mysql else {
        return Err(Exit::Refused.because(
            "this member is a witness, and has no data",
            "run the command on the host of a database member",
        ));
    };
    belongs_to_the_ring(view)?;
    if mysql.follows() {
        let lag = mysql.lag_ms.map(Duration::from_millis);
        return match lag.filter(|lag| *lag > wanted.max_lag) {
            None => Ok(ring),
            Some(lag) => Err(Exit::Refused.because(
                format!(
                    "this member's mysqld is {} behind the ring, and {} is the most",
                    humantime::format_duration(lag),
                    humantime::format_duration(wanted.max_lag)
                ),
                "wait until it has caught up, run the command on another follower's host, or allow more with --max-lag",
            )),
        };
    }
    if mysql.writable {
        return match wanted.on_primary {
            true => Ok(ring),
            false => Err(Exit::Refused.because(
                "this member's mysqld is the primary, which a copy of all data would slow down",
                "run the command on a follower's host, or with --on-primary",
            )),
        };
    }
    Err(Exit::Refused.because(
        format!(
            "this member's mysqld does not follow the ring: {}",
            (mysql.trouble.clone()).unwrap_or_else(|| mysql.role.to_string())
        ),
        "`witness status` says what it waits for",
    ))
}

/// True if a mysqld has no transactions that the ring lacks, as of its member's last comparison.
///
/// # Errors
/// Exit 4 with those transactions.
pub(super) fn belongs_to_the_ring(view: &MemberView) -> Attempt {
    let errant = (view.mysql.as_ref()).and_then(|mysql| mysql.errant.as_ref());
    match errant {
        None => Ok(()),
        Some(errant) => Err(Exit::Refused.because(
            format!(
                "this member's mysqld has executed {} transactions that the ring has not committed ({}), which would be in the backup",
                errant.transactions, errant.gtids
            ),
            "take the backup on another member's host; docs/roles.md says what becomes of these transactions",
        )),
    }
}

/// True if a base backup is due, from the start of the newest one, in seconds since 1970.
pub(super) fn is_due(newest: Option<u64>, older_than: Option<Duration>, now: u64) -> bool {
    match (newest, older_than) {
        (Some(newest), Some(older_than)) => now.saturating_sub(newest) >= older_than.as_secs(),
        _ => true,
    }
}

/// True if a copy has room for the current data plus a tenth, since the server continues to write.
///
/// # Errors
/// Exit 4 if not.
pub(super) fn has_room(data: u64, free: u64, directory: &str) -> Attempt {
    let needed = data.saturating_add(data / 10);
    match needed <= free {
        true => Ok(()),
        false => Err(Exit::Refused.because(
            format!(
                "a copy of the data takes about {needed} bytes, and {directory} has {free} left"
            ),
            "make room there, or name a directory on another disk with --copy-directory",
        )),
    }
}

#[cfg(test)]
mod tests {
    use member::status::{ErrantTransactions, MysqlView, MysqldState, RoleState, WaitingFor};

    use super::*;

    const WANTED: Wanted = Wanted {
        on_primary: false,
        max_lag: Duration::from_secs(60),
    };

    fn ring() -> RingId {
        RingId("11111111-2222-3333-4444-555555555555".parse().unwrap())
    }

    fn view(mysql: Option<MysqlView>) -> MemberView {
        let mut view = member::status::sample::database_leader();
        view.ring.id = Some(ring());
        view.mysql = mysql;
        view
    }

    fn follower() -> MysqlView {
        MysqlView {
            following: true,
            state: MysqldState::Running,
            lag_ms: Some(900),
            ..MysqlView::default()
        }
    }

    fn why_not(mysql: Option<MysqlView>, wanted: Wanted) -> String {
        let refused = may_copy(&view(mysql), wanted).unwrap_err();
        assert_eq!(refused.exit, Exit::Refused);
        refused.what
    }

    #[test]
    fn primary_is_copied_only_on_request() {
        assert_eq!(may_copy(&view(Some(follower())), WANTED).unwrap(), ring());
        let primary = MysqlView {
            writable: true,
            ..MysqlView::default()
        };
        let words = why_not(Some(primary.clone()), WANTED);
        assert!(words.contains("is the primary"), "{words}");
        let asked = Wanted {
            on_primary: true,
            ..WANTED
        };
        assert_eq!(may_copy(&view(Some(primary)), asked).unwrap(), ring());
    }

    #[test]
    fn server_with_errant_transactions_is_not_copied() {
        let words = why_not(None, WANTED);
        assert!(words.contains("is a witness"), "{words}");
        let lagging = MysqlView {
            lag_ms: Some(61_000),
            ..follower()
        };
        let words = why_not(Some(lagging), WANTED);
        assert!(words.contains("1m 1s behind"), "{words}");
        let errant = MysqlView {
            errant: Some(ErrantTransactions {
                transactions: 2,
                gtids: "u:7-8".to_owned(),
            }),
            ..follower()
        };
        let words = why_not(Some(errant), WANTED);
        assert!(
            words.contains("2 transactions") && words.contains("u:7-8"),
            "{words}"
        );
        let replaced = MysqlView {
            role: RoleState::Waiting {
                what: WaitingFor::Step("the data of `b` are being copied".to_owned()),
            },
            ..MysqlView::default()
        };
        let words = why_not(Some(replaced), WANTED);
        assert!(
            words.ends_with("the data of `b` are being copied"),
            "{words}"
        );
        let mut not_yet = view(Some(follower()));
        not_yet.ring.id = None;
        assert!(may_copy(&not_yet, WANTED).is_err());
    }

    #[test]
    fn base_backup_is_due_at_the_configured_age() {
        let day = Some(Duration::from_secs(86_400));
        assert!(is_due(None, day, 5));
        assert!(is_due(Some(5), None, 5));
        assert!(!is_due(Some(5), day, 86_404));
        assert!(is_due(Some(5), day, 86_405));
        // The clocks of two hosts differ.
        assert!(!is_due(Some(50), day, 5));
    }

    #[test]
    fn copy_needs_a_tenth_more_space_than_the_data() {
        assert!(has_room(1000, 1100, "/c").is_ok());
        let refused = has_room(1000, 1099, "/c").unwrap_err();
        assert_eq!(
            refused.what,
            "a copy of the data takes about 1100 bytes, and /c has 1099 left"
        );
    }
}
