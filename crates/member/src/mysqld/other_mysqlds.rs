//! Periodic requests to the other database members for the state of their mysqlds.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use mysqld_controller::plan::same_uuid::OtherMysqlds;
use raft_types::{MemberId, MemberKind, MemberRecord};
use ring_admin::Member;
use tokio::sync::watch;

use crate::other_members::OtherMembers;

/// Interval between two rounds of requests.
const EVERY: Duration = Duration::from_secs(5);
/// Interval of the first rounds, while a report is missing.
const FIRST: Duration = Duration::from_secs(1);
const FIRST_ROUNDS: u32 = 30;
/// How long one member may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Records one round of reports, and removes members that have left the ring.
fn record(
    told: &mut OtherMysqlds,
    members: &BTreeMap<MemberId, MemberRecord>,
    now: impl IntoIterator<Item = (MemberId, Said)>,
) {
    told.asked = true;
    told.uuids.retain(|id, _| members.contains_key(id));
    told.released.retain(|id, _| members.contains_key(id));
    for (id, said) in now {
        let Some(record) = members.get(&id) else {
            continue;
        };
        match said.released {
            true => told.released.insert(id, record.name.clone()),
            false => told.released.remove(&id),
        };
        if let Some(uuid) = said.uuid {
            told.uuids.insert(id, (record.name.clone(), uuid));
        }
    }
}

/// One member's report about its mysqld.
#[derive(Debug, Clone, Default)]
struct Said {
    uuid: Option<String>,
    released: bool,
}

/// Requests the reports of the other database members periodically.
pub(crate) async fn ask_around(
    member: Member,
    others: OtherMembers,
    told: watch::Sender<OtherMysqlds>,
) {
    let mut round = 0_u32;
    loop {
        let mut asked = member.others();
        asked.retain(|_, record| record.kind == MemberKind::Database);
        let answers = asked.iter().map(async |(id, record)| {
            let answer = tokio::time::timeout(PATIENCE, others.view_of(*id, record)).await;
            let mysql = answer.ok()?.ok()?.view.mysql?;
            let (uuid, released) = (mysql.server_uuid, mysql.released);
            Some((*id, Said { uuid, released }))
        });
        let now: Vec<(MemberId, Said)> = join_all(answers).await.into_iter().flatten().collect();
        let with_uuid = now.iter().filter(|(_, said)| said.uuid.is_some());
        let all = with_uuid.count() == asked.len();
        told.send_if_modified(|told| {
            let before = told.clone();
            record(told, &asked, now);
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

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa";
    const OTHER: &str = "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb";

    #[test]
    fn what_a_member_said_last_counts_until_it_says_something_else_or_is_gone() {
        let named = |name: &str| MemberRecord {
            name: name.to_owned(),
            ..MemberRecord::default()
        };
        let both: BTreeMap<_, _> =
            [(MemberId(2), named("db-2")), (MemberId(3), named("db-3"))].into();
        let mut others = OtherMysqlds::default();
        let said = |uuid: &str| Said {
            uuid: Some(uuid.to_owned()),
            released: false,
        };
        record(&mut others, &both, [(MemberId(2), said(UUID))]);
        assert!(others.asked);
        record(&mut others, &both, []);
        assert_eq!(
            others.uuids[&MemberId(2)],
            ("db-2".to_owned(), UUID.to_owned())
        );
        let released = Said {
            uuid: None,
            released: true,
        };
        record(&mut others, &both, [(MemberId(2), released)]);
        record(&mut others, &both, []);
        assert_eq!(others.released[&MemberId(2)], "db-2");
        record(&mut others, &both, [(MemberId(2), said(OTHER))]);
        assert!(others.released.is_empty());
        assert_eq!(others.uuids[&MemberId(2)].1, OTHER);
        let one: BTreeMap<_, _> = [(MemberId(3), named("db-3"))].into();
        record(&mut others, &one, []);
        assert!(others.uuids.is_empty());
    }
}
