//! What the members say of themselves when a quorum may be lost for good, and the plan that follows from it,
//! as an operator reads them.

use consensus::{MemberEvidence, RepairPlan};
use raft_types::{MemberId, OpId};
use serde::Serialize;

use crate::operator::{Directory, Place};
use crate::terminal::Table;

/// One member's, or why there is none.
#[derive(Debug, Serialize)]
pub(super) struct Evidence {
    id: MemberId,
    name: String,
    region: String,
    error: Option<String>,
    evidence: Option<MemberEvidence>,
}

impl Evidence {
    /// What a member said.
    pub(super) fn new(place: &Place, said: Result<MemberEvidence, String>) -> Self {
        Self {
            id: place.id,
            name: place.name.clone(),
            region: place.region.to_string(),
            error: said.as_ref().err().cloned(),
            evidence: said.ok(),
        }
    }

    /// The evidence, when there is some.
    pub(super) fn given(&self) -> Option<MemberEvidence> {
        self.evidence.clone()
    }
}

/// The evidence as a table, and the plan below, if there is one.
pub(super) fn page(
    evidence: &[Evidence],
    plan: Option<&RepairPlan>,
    directory: &Directory,
) -> String {
    let titles = [
        "Id",
        "Name",
        "Region",
        "Answers",
        "Term",
        "Log_end",
        "Committed",
        "Leader",
    ];
    let mut table = Table::new(&titles);
    let missing = || "-".to_owned();
    let op_id = |op_id: Option<OpId>| op_id.map_or_else(missing, |op_id| op_id.to_string());
    for one in evidence {
        let said = one.evidence.as_ref();
        table.row(vec![
            one.id.to_string(),
            one.name.clone(),
            one.region.clone(),
            if said.is_some() { "yes" } else { "no" }.to_owned(),
            said.map_or_else(missing, |said| said.term.to_string()),
            op_id(said.and_then(|said| said.log_end)),
            op_id(said.and_then(|said| said.committed)),
            said.and_then(|said| said.leader)
                .map_or_else(missing, |leader| directory.name(leader)),
        ]);
    }
    let mut lines = table.lines();
    for one in evidence {
        lines.extend(
            one.error
                .as_ref()
                .map(|error| format!("{}: {error}", one.name)),
        );
    }
    if let Some(plan) = plan {
        lines.push(String::new());
        lines.extend(describe(plan, directory));
    }
    lines.join("\n") + "\n"
}

fn describe(plan: &RepairPlan, directory: &Directory) -> Vec<String> {
    let names = |ids: &mut dyn Iterator<Item = &MemberId>| {
        let names = ids.map(|id| directory.name(*id));
        names.collect::<Vec<_>>().join(", ")
    };
    let end = plan
        .log_end
        .map_or_else(|| "is empty".to_owned(), |end| format!("ends at {end}"));
    let mut lines = vec![format!(
        "Plan: {} goes on alone, in term {} or later. Its log {end}, the longest of those that answer.",
        directory.name(plan.survivor),
        plan.term
    )];
    for set in &plan.lost {
        lines.push(format!("Lost: the quorum of {}.", names(&mut set.iter())));
    }
    if !plan.missing.is_empty() {
        lines.push(format!(
            "Missing: {}. Make sure that they do not run where they cannot reach {}.",
            names(&mut plan.missing.iter()),
            directory.name(plan.survivor)
        ));
    }
    if !plan.in_doubt.is_empty() {
        lines.push(format!(
            "In doubt: {}. The ends of their logs were damaged, and may have been acknowledged: they count as if they did not answer.",
            names(&mut plan.in_doubt.iter())
        ));
    }
    if !plan.to_restart.is_empty() {
        lines.push(format!(
            "To be restarted afterwards, because they have committed entries that would be lost: {}.",
            names(&mut plan.to_restart.iter())
        ));
    }
    lines.push(match &plan.loss {
        None => "Data loss: none. Every quorum that may have committed includes a member that answers."
            .to_owned(),
        Some(loss) => {
            let sets = loss.unseen.iter().map(|set| names(&mut set.iter()));
            format!(
                "Data loss possible after {}: the quorum of {} is in force or may have followed, and could have committed without \
                 a member that answers.",
                loss.after.map_or_else(|| "the beginning".to_owned(), |after| after.to_string()),
                sets.collect::<Vec<_>>().join(" together with that of ")
            )
        }
    });
    lines
}

#[cfg(test)]
mod tests {
    use consensus::{PossibleLoss, Term};
    use raft_types::{MemberKind, Region, StoredMembership};

    use super::*;

    #[test]
    fn evidence_and_plan_can_be_read() {
        let place = |id: u64| Place {
            id: MemberId(id),
            name: format!("w-{id}"),
            region: Region("north".into()),
            kind: MemberKind::Witness,
            address: "h:1".into(),
        };
        let end = Some(OpId::new(3, 1042));
        let said = MemberEvidence {
            member: MemberId(3),
            term: Term(3),
            log_end: end,
            committed: Some(OpId::new(3, 1040)),
            membership: StoredMembership::default(),
            settled: None,
            leader: None,
            doubted_tail: false,
        };
        let evidence = [
            Evidence::new(&place(1), Err("no answer within 2s".into())),
            Evidence::new(&place(3), Ok(said)),
        ];
        let mut plan = RepairPlan {
            survivor: MemberId(3),
            log_end: end,
            term: Term(1003),
            lost: vec![[1, 2, 3].map(MemberId).into()],
            missing: [1, 2].map(MemberId).into(),
            in_doubt: [5].map(MemberId).into(),
            to_restart: [4].map(MemberId).into(),
            loss: Some(PossibleLoss {
                after: end,
                unseen: vec![[1, 2, 3].map(MemberId).into()],
            }),
        };
        let expected = "\
Id  Name  Region  Answers  Term  Log_end  Committed  Leader
 1  w-1   north   no          -        -          -       -
 3  w-3   north   yes         3   3.1042     3.1040       -
w-1: no answer within 2s

Plan: member 3 goes on alone, in term 1003 or later. Its log ends at 3.1042, the longest of those that answer.
Lost: the quorum of member 1, member 2, member 3.
Missing: member 1, member 2. Make sure that they do not run where they cannot reach member 3.
In doubt: member 5. The ends of their logs were damaged, and may have been acknowledged: they count as if they did not answer.
To be restarted afterwards, because they have committed entries that would be lost: member 4.
Data loss possible after 3.1042: the quorum of member 1, member 2, member 3 is in force or may have followed, and \
could have committed without a member that answers.
";
        assert_eq!(
            page(&evidence, Some(&plan), &Directory::default()),
            expected
        );
        plan.loss = None;
        let text = page(&evidence, Some(&plan), &Directory::default());
        assert!(text.contains("Data loss: none. Every quorum"), "{text}");
    }
}
