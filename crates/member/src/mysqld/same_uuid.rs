//! Two mysqlds with one `server_uuid`, as behind a copy of a data directory with its `auto.cnf`, or two members that look after one
//! mysqld. Two servers of one UUID give the same GTIDs to different transactions, so that no comparison of GTIDs says whether one has
//! what the ring has. Stock replicas refuse such a source; here each member asks the others for theirs.

use std::collections::BTreeMap;
use std::time::Duration;

use consensus::Member;
use futures::future::join_all;
use mysqld_controller::Ring;
use mysqld_controller::apply::StandingFile;
use mysqld_controller::status::Hold;
use mysqld_controller::watch::{Protection, WatchReport};
use raft_types::{MemberId, MemberKind, MemberRecord};
use tokio::sync::watch;
use transport::{AdminClient, TlsMaterial, TransportConfig};

use crate::ring_handle::RingHandle;
use crate::settings::MysqlMode;
use crate::status::MemberView;

/// Between two rounds of questions.
const EVERY: Duration = Duration::from_secs(5);
/// The same while somebody has not said it yet, for the first rounds.
const FIRST: Duration = Duration::from_secs(1);
const FIRST_ROUNDS: u32 = 30;
/// How long one member may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the other database members said last of their mysqlds. Who does not answer, or whose mysqld is down, is believed what it said
/// before: that one may come back as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OtherMysqlds {
    /// Whether all were asked at least once.
    pub(crate) asked: bool,
    /// Name of the member and UUID of its server.
    pub(crate) said: BTreeMap<MemberId, (String, String)>,
}

impl OtherMysqlds {
    /// Where nobody asks.
    pub(crate) fn nobody() -> watch::Receiver<Self> {
        let nobody = Self {
            asked: true,
            said: BTreeMap::new(),
        };
        watch::channel(nobody).1
    }

    /// Takes in what was said in one round. Who is no member any more goes.
    fn told(
        &mut self,
        members: &BTreeMap<MemberId, MemberRecord>,
        now: impl IntoIterator<Item = (MemberId, String)>,
    ) {
        self.asked = true;
        self.said.retain(|id, _| members.contains_key(id));
        for (id, uuid) in now {
            if let Some(record) = members.get(&id) {
                self.said.insert(id, (record.name.clone(), uuid));
            }
        }
    }
}

/// Asks the other database members again and again.
pub(crate) async fn ask_around(
    member: Member,
    tls: Option<TlsMaterial>,
    transport: TransportConfig,
    told: watch::Sender<OtherMysqlds>,
) {
    let mut clients: BTreeMap<MemberId, (String, AdminClient)> = BTreeMap::new();
    let mut round = 0_u32;
    loop {
        let mut others = member.others();
        others.retain(|_, record| record.kind == MemberKind::Database);
        clients.retain(|id, (address, _)| {
            others
                .get(id)
                .is_some_and(|record| record.address == *address)
        });
        for (id, record) in &others {
            if !clients.contains_key(id)
                && let Ok(client) = AdminClient::new(&record.address, tls.as_ref(), transport)
            {
                clients.insert(*id, (record.address.clone(), client));
            }
        }
        let asked = clients.iter().map(async |(id, (_, client))| {
            let answer = tokio::time::timeout(PATIENCE, client.status()).await;
            let view = serde_json::from_slice::<MemberView>(&answer.ok()?.ok()?).ok()?;
            // Whoever has the address of a member that is gone says nothing of that one.
            let is_it = view.member.id == *id;
            let uuid = view.mysql?.server_uuid.filter(|_| is_it)?;
            Some((*id, uuid))
        });
        let now: Vec<(MemberId, String)> = join_all(asked).await.into_iter().flatten().collect();
        let all = now.len() == others.len();
        told.send_if_modified(|told| {
            let before = told.clone();
            told.told(&others, now);
            *told != before
        });
        round = round.saturating_add(1);
        let pause = match all || round > FIRST_ROUNDS {
            true => EVERY,
            false => FIRST,
        };
        tokio::time::sleep(pause).await;
    }
}

/// The UUID of the server that answers now.
pub(super) fn uuid_of(report: &WatchReport) -> Option<String> {
    let answers = !matches!(report.protection, Protection::Unknown { .. });
    let server = report.server.as_ref().filter(|_| answers)?;
    server.server_uuid.map(|uuid| uuid.to_string())
}

/// What is known of this member's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Own<'a> {
    uuid: Option<&'a str>,
    /// Whether another member leads, and its server is the primary.
    primary_elsewhere: bool,
    /// Whether it was the ring's primary when it was compared last.
    was_primary: bool,
    /// Who starts it.
    mode: MysqlMode,
}

/// What follows from the UUIDs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Why the server is not used, if it is not.
    pub(super) hold: Option<Hold>,
    /// Whether nothing at all is done to it: it may be another member's.
    pub(super) hands_off: bool,
    /// What is to be said of a primary that goes on.
    pub(super) warning: Option<String>,
}

/// The verdict, pure. The primary goes on: its transactions are the ring's. A server that the member has not started may be the
/// very one that another member looks after, so that one is not touched before the others were asked.
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

/// Says what follows, whenever something changes, until the watch of this member ends.
pub(super) async fn look(
    ring: std::sync::Arc<RingHandle>,
    standing: StandingFile,
    mode: MysqlMode,
    mut reports: watch::Receiver<WatchReport>,
    mut others: watch::Receiver<OtherMysqlds>,
    told: watch::Sender<Verdict>,
) {
    // One that is down for a moment is the same when it is back.
    let mut uuid = None;
    loop {
        // It looks each second, which tells of changes of the ring soon enough.
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

/// Before anything is known.
pub(super) fn at_first(mode: MysqlMode, others: &OtherMysqlds) -> Verdict {
    let own = Own {
        uuid: None,
        primary_elsewhere: false,
        was_primary: false,
        mode,
    };
    judge(own, others)
}

/// What keeps the server from being used: a copy of other data comes first, since whoever makes it waits for its own word.
pub(super) async fn merge(
    mut provisioning: watch::Receiver<Option<Hold>>,
    mut verdict: watch::Receiver<Verdict>,
    hold: watch::Sender<Option<Hold>>,
    hands_off: watch::Sender<bool>,
) {
    loop {
        let verdict_now = verdict.borrow_and_update().clone();
        let provisioned = provisioning.borrow_and_update().clone();
        // The command that makes a copy was given for this server.
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
        // Whether another one leads, whether it was the primary last; whether it goes on.
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
        // Nothing was seen of it yet.
        let unseen = Own {
            uuid: None,
            ..own(true, false, MysqlMode::Child)
        };
        assert_eq!(judge(unseen, &others(&[UUID])), Verdict::default());
    }

    #[test]
    fn what_a_member_said_last_counts_until_it_says_something_else_or_is_gone() {
        let record = |name: &str| MemberRecord {
            name: name.to_owned(),
            ..MemberRecord::default()
        };
        let both: BTreeMap<_, _> =
            [(MemberId(2), record("db-2")), (MemberId(3), record("db-3"))].into();
        let mut others = OtherMysqlds::default();
        others.told(&both, [(MemberId(2), UUID.to_owned())]);
        assert!(others.asked);
        others.told(&both, []);
        assert_eq!(
            others.said[&MemberId(2)],
            ("db-2".to_owned(), UUID.to_owned())
        );
        others.told(&both, [(MemberId(2), OTHER.to_owned())]);
        assert_eq!(others.said[&MemberId(2)].1, OTHER);
        let one: BTreeMap<_, _> = [(MemberId(3), record("db-3"))].into();
        others.told(&one, []);
        assert!(others.said.is_empty());
    }
}
