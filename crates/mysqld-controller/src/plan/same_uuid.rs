//! Detects two mysqlds with one `server_uuid`, for example after a copy of a data directory with its `auto.cnf`, or two members that manage
//! one mysqld. Such servers assign the same GTIDs to different transactions, so GTID comparisons prove nothing. Stock replicas refuse such
//! a source; in the ring, each member queries the others' UUIDs.

use std::collections::BTreeMap;

use raft_types::MemberId;

use crate::status::Hold;
use crate::watch::{Protection, WatchReport};

/// The last reports of the other database members about their mysqlds. A report stays valid while its member does not answer or its mysqld
/// is down, because that mysqld may return unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtherMysqlds {
    /// True if every other member was queried at least once.
    pub asked: bool,
    /// Name of the member and UUID of its mysqld, by member.
    pub uuids: BTreeMap<MemberId, (String, String)>,
    /// Names of the members whose mysqlds were the ring's primary, and accept writes without the ring.
    pub released: BTreeMap<MemberId, String>,
}

/// Returns the UUID of the server if it answered the last query.
pub fn uuid_of(report: &WatchReport) -> Option<String> {
    let answers = !matches!(report.protection, Protection::Unknown { .. });
    let server = report.server.as_ref().filter(|_| answers)?;
    server.server_uuid.map(|uuid| uuid.to_string())
}

/// State of this member's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Own<'a> {
    pub(crate) uuid: Option<&'a str>,
    /// True if another member leads and has the primary.
    pub(crate) primary_elsewhere: bool,
    /// True if this server was the ring's primary at the last comparison.
    pub(crate) was_primary: bool,
    /// True if another program starts the server (`mysql.mode = "attach"`).
    pub(crate) attached: bool,
}

/// Result of the comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why the server is not used; `None` if it is.
    pub hold: Option<Hold>,
    /// True if the member must not touch the server at all, because it may be another member's.
    pub hands_off: bool,
    /// The warning about a primary that stays in use.
    pub warning: Option<String>,
}

impl OtherMysqlds {
    /// True if another member has reported this UUID.
    pub(crate) fn have(&self, uuid: Option<&String>) -> bool {
        self.uuids.values().any(|(_, theirs)| Some(theirs) == uuid)
    }
}

/// Returns the verdict. Pure. The primary stays in use, because its transactions are the ring's. A server that the member has not started
/// may be managed by another member, so the member does not touch it before all others were queried.
pub(crate) fn judge(own: Own<'_>, others: &OtherMysqlds) -> Verdict {
    let same = others.uuids.values();
    let same = same.filter(|(_, uuid)| Some(uuid.as_str()) == own.uuid);
    let names: Vec<String> = same.map(|(name, _)| format!("`{name}`")).collect();
    if names.is_empty() {
        return Verdict {
            hands_off: own.attached && !others.asked,
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
            hands_off: own.attached,
            warning: None,
        },
    }
}

#[cfg(test)]
mod tests {
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
            uuids: said.collect(),
            ..OtherMysqlds::default()
        }
    }

    fn own(primary_elsewhere: bool, was_primary: bool, attached: bool) -> Own<'static> {
        Own {
            uuid: Some(UUID),
            primary_elsewhere,
            was_primary,
            attached,
        }
    }

    #[test]
    fn only_the_primary_of_two_servers_with_one_uuid_is_used() {
        let twins = others(&[OTHER, UUID]);
        // Columns: whether another member leads, whether this server was the primary, and whether it stays in use.
        for (elsewhere, was_primary, continues) in [
            (false, true, true),
            (true, true, false),
            (true, false, false),
            (false, false, false),
        ] {
            for attached in [false, true] {
                let verdict = judge(own(elsewhere, was_primary, attached), &twins);
                let message = match (&verdict.hold, &verdict.warning) {
                    (Some(Hold::Interrupted { cause }), None) => cause,
                    (None, Some(warning)) => warning,
                    _ => panic!("{verdict:?}"),
                };
                assert!(
                    message.contains("`db-3`") && message.contains(UUID),
                    "{message}"
                );
                assert!(
                    !message.contains("db-2") && message.contains("auto.cnf"),
                    "{message}"
                );
                assert_eq!(
                    verdict.hold.is_none(),
                    continues,
                    "{elsewhere} {was_primary}"
                );
                let untouched = !continues && attached;
                assert_eq!(verdict.hands_off, untouched, "{attached}");
            }
        }
    }

    #[test]
    fn unique_uuids_allow_use_and_an_attached_server_waits_for_reports() {
        let alone = others(&[OTHER]);
        for attached in [false, true] {
            assert_eq!(
                judge(own(true, false, attached), &alone),
                Verdict::default()
            );
            let unasked = judge(own(true, false, attached), &OtherMysqlds::default());
            assert_eq!(unasked.hold, None);
            assert_eq!(unasked.hands_off, attached);
        }
        // No UUID was observed yet.
        let unseen = Own {
            uuid: None,
            ..own(true, false, false)
        };
        assert_eq!(judge(unseen, &others(&[UUID])), Verdict::default());
    }
}
