//! The tree of replication routes, when a member receives entries through another one.

use std::collections::BTreeMap;

use member::status::{LoggedMember, MemberView};
use raft_types::MemberId;

use crate::operator::hops;

/// The lines, the leader first; none when all members receive entries from the leader.
pub(super) fn lines(leader: &MemberView) -> Vec<String> {
    let Some(routes) = &leader.replication_routes else {
        return Vec::new();
    };
    if routes.routes.iter().all(|route| route.through.is_empty()) {
        return Vec::new();
    }
    let (own, hops) = (leader.member.id, hops(leader));
    let mut below: BTreeMap<MemberId, Vec<&LoggedMember>> = BTreeMap::new();
    for member in leader.members.iter().filter(|member| member.id != own) {
        let hop = hops.iter().find(|hop| hop.to == member.id);
        below
            .entry(hop.map_or(own, |hop| hop.from))
            .or_default()
            .push(member);
    }
    // Relaying members come after the others: the tree is read from top to bottom.
    let mut lines = vec![format!("Entries travel from `{}`", leader.member.name)];
    draw(own, "", &below, &mut lines);
    lines
}

fn draw(
    from: MemberId,
    indent: &str,
    below: &BTreeMap<MemberId, Vec<&LoggedMember>>,
    lines: &mut Vec<String>,
) {
    let members = below.get(&from).map(Vec::as_slice).unwrap_or_default();
    for (at, member) in members.iter().enumerate() {
        let (branch, deeper) = match at + 1 == members.len() {
            true => ("└─ ", "   "),
            false => ("├─ ", "│  "),
        };
        let record = &member.record;
        lines.push(format!(
            "{indent}{branch}{} ({})",
            record.name, record.region
        ));
        draw(member.id, &format!("{indent}{deeper}"), below, lines);
    }
}

#[cfg(test)]
mod tests {
    use proxy::RouteView;
    use raft_types::MemberRecord;
    use raft_types::Region;

    use super::*;
    use member::status::ReplicationRoutesView;
    use member::status::sample::database_leader;

    fn leader(routes: &[(u64, &[u64])]) -> MemberView {
        let mut view = database_leader();
        let names = ["a-db", "a-w", "b-db", "b-w1", "b-w2", "c-w"];
        view.members = names
            .iter()
            .zip(1..)
            .map(|(name, id)| LoggedMember {
                id: MemberId(id),
                voter: true,
                record: MemberRecord {
                    name: (*name).to_owned(),
                    region: Region(name[..1].to_owned()),
                    ..MemberRecord::default()
                },
            })
            .collect();
        view.member.name = "a-db".to_owned();
        view.replication_routes = Some(ReplicationRoutesView {
            routes: routes
                .iter()
                .map(|(member, through)| RouteView {
                    member: MemberId(*member),
                    through: through.iter().copied().map(MemberId).collect(),
                    because: None,
                })
                .collect(),
            ..ReplicationRoutesView::default()
        });
        view
    }

    #[test]
    fn members_stand_below_those_who_send_on_to_them() {
        let view = leader(&[(4, &[3]), (5, &[3]), (6, &[3, 5])]);
        let expected = "\
Entries travel from `a-db`
├─ a-w (a)
└─ b-db (b)
   ├─ b-w1 (b)
   └─ b-w2 (b)
      └─ c-w (c)";
        assert_eq!(lines(&view).join("\n"), expected);
    }

    #[test]
    fn nothing_is_drawn_where_nothing_is_sent_on_and_a_circle_hides_nobody() {
        assert!(lines(&leader(&[(4, &[])])).is_empty());
        let circle = leader(&[(2, &[3]), (3, &[2]), (4, &[3])]);
        assert_eq!(lines(&circle).len(), circle.members.len());
    }
}
