//! Two mysqlds with one `server_uuid`, as after a copy of a data directory with its `auto.cnf`, or two members that manage one mysqld. Such
//! servers give the same GTIDs to different transactions, so GTID comparisons prove nothing. Stock replicas refuse such a source; here each
//! member queries the others' UUIDs ([`super::other_mysqlds`]).

use mysqld_controller::Ring;
use mysqld_controller::status::Hold;
use mysqld_controller::watch::{Protection, WatchReport};
use mysqld_server::standing::StandingFile;
use tokio::sync::watch;

use super::other_mysqlds::OtherMysqlds;
use crate::ring_handle::RingHandle;
use crate::settings::MysqlMode;

/// The UUID of the server that currently answers.
pub(super) fn uuid_of(report: &WatchReport) -> Option<String> {
    let answers = !matches!(report.protection, Protection::Unknown { .. });
    let server = report.server.as_ref().filter(|_| answers)?;
    server.server_uuid.map(|uuid| uuid.to_string())
}

/// State of this member's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Own<'a> {
    uuid: Option<&'a str>,
    /// Whether another member leads, with the primary.
    primary_elsewhere: bool,
    /// Whether it was the ring's primary at the last comparison.
    was_primary: bool,
    /// What starts it.
    mode: MysqlMode,
}

/// Result of the comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Why the server is not used, if so.
    pub(super) hold: Option<Hold>,
    /// Whether the server is not touched at all: it may be another member's.
    pub(super) hands_off: bool,
    /// The warning about a primary that continues.
    pub(super) warning: Option<String>,
}

/// The verdict, pure. The primary continues: its transactions are the ring's. A server that the member has not started may be managed by
/// another member, so it is not touched before the others were queried.
fn judge(own: Own<'_>, others: &OtherMysqlds) -> Verdict {
    let attached = own.mode == MysqlMode::Attach;
    let same = others.said.values();
    let same = same.filter(|(_, uuid)| Some(uuid.as_str()) == own.uuid);
    let names: Vec<String> = same.map(|(name, _)| format!("`{name}`")).collect();
    if names.is_empty() {
        return Verdict {
            hands_off: attached && !others.asked,
            ..Verdict::default()
        };
    }
    let words = format!(
        "the mysqld of this member and that of {} have the same server_uuid ({}): nothing tells their transactions apart",
        names.join(" and "),
        own.uuid.unwrap_or_default()
    );
    const ADVICE: &str = "stop it, remove auto.cnf from its data directory, start it and reprovision it; or, where two members look \
                          after one mysqld, correct [mysql] in one of their configurations";
    match own.was_primary && !own.primary_elsewhere {
        true => Verdict {
            warning: Some(format!("{words}. Of the other one, {ADVICE}")),
            ..Verdict::default()
        },
        false => Verdict {
            hold: Some(Hold::Interrupted {
                cause: format!("{words}, and it is not used. If it is not the primary, {ADVICE}"),
            }),
            hands_off: attached,
            warning: None,
        },
    }
}

/// Reports the verdict at each change, until this member's watch ends.
pub(super) async fn look(
    ring: std::sync::Arc<RingHandle>,
    standing: StandingFile,
    mode: MysqlMode,
    mut reports: watch::Receiver<WatchReport>,
    mut others: watch::Receiver<OtherMysqlds>,
    told: watch::Sender<Verdict>,
) {
    // A server that is briefly down keeps its UUID.
    let mut uuid = None;
    loop {
        // The watch checks every second, soon enough to notice changes of the ring.
        uuid = uuid_of(&reports.borrow_and_update()).or(uuid);
        let others_now = others.borrow_and_update().clone();
        let is_shared = others_now
            .said
            .values()
            .any(|(_, theirs)| Some(theirs) == uuid.as_ref());
        let own = Own {
            uuid: uuid.as_deref(),
            primary_elsewhere: ring.primary_elsewhere().is_some(),
            was_primary: is_shared && standing.is_of_the_primary(),
            mode,
        };
        let verdict = judge(own, &others_now);
        told.send_if_modified(|told| {
            let changed = *told != verdict;
            if let Some(warning) = verdict.warning.as_ref().filter(|_| changed) {
                tracing::warn!("{warning}");
            }
            if let (true, Some(Hold::Interrupted { cause })) = (changed, &verdict.hold) {
                tracing::warn!("mysqld is not used: {cause}");
            }
            *told = verdict;
            changed
        });
        tokio::select! {
            changed = reports.changed() => if changed.is_err() { return },
            Ok(()) = others.changed() => {}
        }
    }
}

/// The verdict before the first reports.
pub(super) fn at_first(mode: MysqlMode, others: &OtherMysqlds) -> Verdict {
    let own = Own {
        uuid: None,
        primary_elsewhere: false,
        was_primary: false,
        mode,
    };
    judge(own, others)
}

/// Hold of the server: an ongoing copy comes first, since it waits for its own hold.
pub(super) async fn merge(
    mut provisioning: watch::Receiver<Option<Hold>>,
    mut verdict: watch::Receiver<Verdict>,
    hold: watch::Sender<Option<Hold>>,
    hands_off: watch::Sender<bool>,
) {
    loop {
        let verdict_now = verdict.borrow_and_update().clone();
        let provisioned = provisioning.borrow_and_update().clone();
        // The command for the copy was given for this server.
        let off = verdict_now.hands_off && provisioned.is_none();
        hands_off.send_if_modified(|told| std::mem::replace(told, off) != off);
        let held = provisioned.or(verdict_now.hold);
        hold.send_if_modified(|told| {
            let changed = *told != held;
            *told = held;
            changed
        });
        let gone = tokio::select! {
            changed = provisioning.changed() => changed.is_err(),
            changed = verdict.changed() => changed.is_err(),
        };
        if gone {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use raft_types::MemberId;

    use super::*;

    const UUID: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
    const OTHER: &str = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb";

    fn others(uuids: &[&str]) -> OtherMysqlds {
        let said = uuids.iter().zip(2..).map(|(uuid, id)| {
            let name = format!("db-{id}");
            (MemberId(id), (name, (*uuid).to_owned()))
        });
        OtherMysqlds {
            asked: true,
            said: said.collect(),
            ..OtherMysqlds::default()
        }
    }

    fn own(primary_elsewhere: bool, was_primary: bool, mode: MysqlMode) -> Own<'static> {
        Own {
            uuid: Some(UUID),
            primary_elsewhere,
            was_primary,
            mode,
        }
    }

    #[test]
    fn of_two_servers_with_one_uuid_the_primary_alone_is_used() {
        let twins = others(&[OTHER, UUID]);
        // Whether another member leads, whether it was the primary; whether it continues.
        for (elsewhere, was_primary, goes_on) in [
            (false, true, true),
            (true, true, false),
            (true, false, false),
            (false, false, false),
        ] {
            for mode in [MysqlMode::Child, MysqlMode::External, MysqlMode::Attach] {
                let verdict = judge(own(elsewhere, was_primary, mode), &twins);
                let said = match (&verdict.hold, &verdict.warning) {
                    (Some(Hold::Interrupted { cause }), None) => cause,
                    (None, Some(warning)) => warning,
                    _ => panic!("{verdict:?}"),
                };
                assert!(said.contains("`db-3`") && said.contains(UUID), "{said}");
                assert!(
                    !said.contains("db-2") && said.contains("auto.cnf"),
                    "{said}"
                );
                assert_eq!(verdict.hold.is_none(), goes_on, "{elsewhere} {was_primary}");
                let untouched = !goes_on && mode == MysqlMode::Attach;
                assert_eq!(verdict.hands_off, untouched, "{mode:?}");
            }
        }
    }

    #[test]
    fn servers_with_uuids_of_their_own_are_used_once_a_strange_one_was_asked_about() {
        let alone = others(&[OTHER]);
        for mode in [MysqlMode::Child, MysqlMode::Attach] {
            assert_eq!(judge(own(true, false, mode), &alone), Verdict::default());
            let unasked = judge(own(true, false, mode), &OtherMysqlds::default());
            assert_eq!(unasked.hold, None);
            assert_eq!(unasked.hands_off, mode == MysqlMode::Attach);
        }
        // Not observed yet.
        let unseen = Own {
            uuid: None,
            ..own(true, false, MysqlMode::Child)
        };
        assert_eq!(judge(unseen, &others(&[UUID])), Verdict::default());
    }
}
