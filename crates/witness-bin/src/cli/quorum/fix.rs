//! `witness quorum fix`: the repair of a permanently lost quorum. Queries every member for evidence, also without a leader, shows it and
//! the plan, and executes the plan only on request.

use std::time::Duration;

use member::protocol::{CommandResult, OperatorCommand};
use raft_types::{MemberId, OpId};
use ring_admin::{MemberEvidence, PossibleLoss, RepairPlan, WhyUnused, accept_repair, plan_repair};
use serde::Serialize;
use tokio::time::Instant;

use crate::cli::session::{Consent, Patience, RingArgs, Session, another_answer, block_on};
use crate::operator::{Directory, MemberAddress, RingReport};
use crate::terminal::{Exit, Failure, Format, Table, print_json, print_text};

/// Arguments of `witness quorum fix`.
#[derive(Debug, clap::Args)]
pub(crate) struct FixArgs {
    /// Carry the plan out
    #[arg(long)]
    apply: bool,
    /// The plan that was looked at; another one is not carried out
    #[arg(long, value_name = "PLAN")]
    plan: Option<String>,
    /// The last entry that is sure to be kept, as the plan names it: what came after it may be lost
    #[arg(long, value_name = "OP_ID")]
    accept_loss: Option<OpId>,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    ring: RingArgs,
}

/// Output of `witness quorum fix --output json`.
#[derive(Debug, Serialize)]
struct Document<'a> {
    evidence: &'a [Evidence],
    plan_id: String,
    plan: &'a RepairPlan,
    /// Why it was not, or would not be, executed.
    refusal: Option<String>,
    /// The log entry with the repair, when executed.
    applied: Option<OpId>,
    /// The leader afterwards, when executed.
    leader: Option<MemberId>,
}

/// How often to check whether the ring serves again.
const LOOK: Duration = Duration::from_millis(200);
/// Time limit for the evidence of one member.
const EVIDENCE_PATIENCE: Duration = Duration::from_secs(2);

/// Runs `witness quorum fix`.
///
/// # Errors
/// Exit 4 when there is nothing to repair, when a possible loss was not accepted, and when the plan has changed since it was shown; 3 when
/// no member answers, 5 when its result is unknown.
pub(crate) fn run(args: &FixArgs, format: Format) -> Result<(), Failure> {
    let session = Session::open(&args.ring)?;
    block_on(async {
        let until = args.patience.until();
        let (report, directory) = session.ring().await?;
        let evidence = gather(&session, &report, &directory).await;
        let given: Vec<_> = evidence.iter().filter_map(Evidence::given).collect();
        let planned = plan_repair(&given);
        if format == Format::Table {
            print_text(&page(&evidence, planned.as_ref().ok(), &directory))?;
        }
        let plan = planned.map_err(|refusal| directory.failure(&refusal.into()))?;
        let mut document = Document {
            evidence: &evidence,
            plan_id: identity(&plan),
            plan: &plan,
            refusal: None,
            applied: None,
            leader: None,
        };
        if let Err(failure) = may_apply(args, &plan, &directory) {
            document.refusal = Some(failure.what.clone());
            if format == Format::Json {
                print_json(&document)?;
            }
            return Err(failure);
        }
        if !args.apply {
            return dry_run(args, &document, format);
        }
        consented(args, &session, &report, &directory, &plan).await?;
        let entry = apply(args, &session, &directory, &plan, until).await?;
        let leader = serves_again(&session, until).await;
        document.applied = Some(entry);
        document.leader = leader;
        end(&document, &directory, format)
    })
}

/// Queries every known member concurrently.
async fn gather(session: &Session, report: &RingReport, directory: &Directory) -> Vec<Evidence> {
    let until = Instant::now() + EVIDENCE_PATIENCE;
    let asked = directory.places().map(async |place| {
        let asked =
            session
                .operator
                .at(place, directory, &OperatorCommand::Evidence, until, |_| {});
        let evidence: Result<MemberEvidence, String> = match asked.await {
            Ok(CommandResult::Evidence(evidence)) => Ok(*evidence),
            Ok(other) => Err(another_answer(&other).what),
            Err(failure) => Err(silence(report, place.id).unwrap_or(failure.what)),
        };
        Evidence::new(place, evidence)
    });
    futures::future::join_all(asked).await
}

/// Why a member gave no evidence.
fn silence(report: &RingReport, id: MemberId) -> Option<String> {
    let member = report.members.iter().find(|member| member.id == id)?;
    member.error.clone()
}

/// Whether the operator has given all options that the plan needs.
fn may_apply(args: &FixArgs, plan: &RepairPlan, directory: &Directory) -> Result<(), Failure> {
    let id = identity(plan);
    if let Some(looked_at) = args.plan.as_ref().filter(|looked_at| **looked_at != id) {
        return Err(Failure::new(
            Exit::Refused,
            format!("the plan is {id} now, not {looked_at}; nothing was done"),
            format!("look at what has changed above, and give --plan {id} if it is right"),
        ));
    }
    accept_repair(plan, args.accept_loss).map_err(|refusal| directory.failure(&refusal.into()))
}

/// A plan's identity: its actions, members and evidence.
fn identity(plan: &RepairPlan) -> String {
    // Plain values, which always have a JSON form.
    let json = serde_json::to_vec(plan).unwrap_or_default();
    format!("{:08x}", crc32c::crc32c(&json))
}

fn dry_run(args: &FixArgs, document: &Document<'_>, format: Format) -> Result<(), Failure> {
    if format == Format::Json {
        return print_json(document);
    }
    let mut command = format!("witness quorum fix --apply --plan {}", document.plan_id);
    if let Some(accepted) = args.accept_loss {
        command += &format!(" --accept-loss {accepted}");
    }
    print_text(&format!("\nNothing was done. To carry it out: {command}\n"))
}

/// Asks the operator without a time limit, then queries all members again: the plan must be unchanged.
async fn consented(
    args: &FixArgs,
    session: &Session,
    report: &RingReport,
    directory: &Directory,
    plan: &RepairPlan,
) -> Result<(), Failure> {
    args.consent.to(&format!(
        "Let {} continue alone as plan {} says? Members that did not answer must not run a quorum of their own.",
        directory.name(plan.survivor),
        identity(plan)
    ))?;
    let evidence = gather(session, report, directory).await;
    let given: Vec<_> = evidence.iter().filter_map(Evidence::given).collect();
    let now = plan_repair(&given).map_err(|refusal| directory.failure(&refusal.into()))?;
    still_the_plan(plan, &now)
}

fn still_the_plan(plan: &RepairPlan, now: &RepairPlan) -> Result<(), Failure> {
    if plan == now {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Refused,
        format!(
            "the evidence has changed, and plan {} has become {}; nothing was done",
            identity(plan),
            identity(now)
        ),
        "look at the new plan with `witness quorum fix`",
    ))
}

async fn apply(
    args: &FixArgs,
    session: &Session,
    directory: &Directory,
    plan: &RepairPlan,
    until: Instant,
) -> Result<OpId, Failure> {
    let survivor = directory.name(plan.survivor);
    let place = directory.get(plan.survivor).ok_or_else(|| {
        Failure::new(
            Exit::Refused,
            format!("the address of {survivor} is not known"),
            "add it to [[members]] of this configuration",
        )
    })?;
    let command = OperatorCommand::RepairQuorum {
        plan: plan.clone(),
        accepted_loss: args.accept_loss,
    };
    let repaired = session
        .operator
        .at(place, directory, &command, until, |_| {})
        .await?;
    match repaired {
        CommandResult::Repaired(entry) => Ok(entry),
        other => Err(another_answer(&other)),
    }
}

async fn serves_again(session: &Session, until: Instant) -> Option<MemberId> {
    while Instant::now() < until {
        if let Some(leader) = session.operator.ring().await.leader {
            return Some(leader);
        }
        tokio::time::sleep(LOOK).await;
    }
    None
}

fn end(document: &Document<'_>, directory: &Directory, format: Format) -> Result<(), Failure> {
    let survivor = directory.name(document.plan.survivor);
    match format {
        Format::Json => print_json(document)?,
        Format::Table => {
            let entry = document
                .applied
                .map_or_else(String::new, |entry| entry.to_string());
            let mut text = format!("\nThe quorum is {survivor} alone since entry {entry}.\n");
            if let Some(leader) = document.leader {
                text += &format!("{} leads, and commits continue.\n", directory.name(leader));
            }
            for step in steps(document.plan, directory) {
                text += &format!("{step}\n");
            }
            print_text(&text)?;
        }
    }
    match document.leader {
        Some(_) => Ok(()),
        None => Err(Failure::new(
            Exit::Unknown,
            "the repair is in the log, but no member serves as the leader yet",
            "check with `witness status`",
        )),
    }
}

/// The operator's tasks after a repair.
fn steps(plan: &RepairPlan, directory: &Directory) -> Vec<String> {
    let names = |ids: &std::collections::BTreeSet<MemberId>| {
        let names = ids.iter().map(|id| directory.name(*id));
        names.collect::<Vec<_>>().join(", ")
    };
    let mut steps = Vec::new();
    if !plan.to_restart.is_empty() {
        steps.push(format!(
            "Restart {}: what they have beyond the repair is cut back at their start.",
            names(&plan.to_restart)
        ));
    }
    if !plan.missing.is_empty() {
        steps.push(format!(
            "Remove {} with `witness members remove`, and add members in their place; or start them where they reach \
             the others: they cut their logs back.",
            names(&plan.missing)
        ));
    }
    steps
}

// Evidence of the members about a possibly permanent loss of quorum, and the resulting plan, as output for an operator.

/// One member's evidence, or why there is none.
#[derive(Debug, Serialize)]
pub(super) struct Evidence {
    id: MemberId,
    name: String,
    region: String,
    error: Option<String>,
    evidence: Option<MemberEvidence>,
}

impl Evidence {
    pub(super) fn new(place: &MemberAddress, said: Result<MemberEvidence, String>) -> Self {
        Self {
            id: place.id,
            name: place.name.clone(),
            region: place.region.to_string(),
            error: said.as_ref().err().cloned(),
            evidence: said.ok(),
        }
    }

    /// The evidence, if any.
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
        "Plan: {} continues alone, in term {} or later. Its log {end}, the longest of those that answer.",
        directory.name(plan.survivor),
        plan.term
    )];
    for set in &plan.lost {
        lines.push(format!("Lost: the quorum of {}.", names(&mut set.iter())));
    }
    if !plan.missing.is_empty() {
        lines.push(format!(
            "Missing: {}. Make sure that they do not run where they cannot reach {}. The plan does not use their logs: start those whose \
             disks are intact, and make the plan again.",
            names(&mut plan.missing.iter()),
            directory.name(plan.survivor)
        ));
    }
    for (why, reason) in [
        (WhyUnused::Shorter, "they end before the survivor's"),
        (WhyUnused::SameEnd, "they end where the survivor's ends"),
        (WhyUnused::Empty, "they are empty"),
    ] {
        let mut unused = plan.unused.iter().filter(|log| log.why == why).peekable();
        if unused.peek().is_some() {
            let unused = names(&mut unused.map(|log| &log.member));
            lines.push(format!(
                "Logs that answer and are not used: {unused}; {reason}."
            ));
        }
    }
    if !plan.in_doubt.is_empty() {
        lines.push(format!(
            "In doubt: {}. The ends of their logs were damaged, and may have been acknowledged: they count as if they did not answer.",
            names(&mut plan.in_doubt.iter())
        ));
    }
    if let Some(end) = plan.gone_on {
        lines.push(format!(
            "Gone on: the ring has gone on to {end}, as a member was told that answers, and no member that answers has that. Look for the \
             one that has it first: the survivor of an earlier repair."
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
        Some(loss) if loss.unseen.is_empty() => format!(
            "Data loss possible after {}: what the ring has gone on to is not there.",
            end_of(loss)
        ),
        Some(loss) => {
            let sets = loss.unseen.iter().map(|set| names(&mut set.iter()));
            format!(
                "Data loss possible after {}: the quorum of {} is in force or may be by now, and could have committed without \
                 a member that answers.",
                end_of(loss),
                sets.collect::<Vec<_>>().join(" together with that of ")
            )
        }
    });
    lines
}

fn end_of(loss: &PossibleLoss) -> String {
    let beginning = || "the beginning".to_owned();
    loss.after.map_or_else(beginning, |after| after.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use consensus::Term;

    use super::*;

    #[derive(clap::Parser)]
    struct Arguments {
        #[command(flatten)]
        fix: FixArgs,
    }

    fn args(line: &str) -> FixArgs {
        use clap::Parser;
        Arguments::parse_from(format!("fix {line}").split_whitespace()).fix
    }

    fn plan(loss: bool) -> RepairPlan {
        let end = Some(OpId::new(3, 1042));
        RepairPlan {
            survivor: MemberId(3),
            log_end: end,
            term: Term(1003),
            lost: vec![[1, 2, 3].map(MemberId).into()],
            missing: [1, 2].map(MemberId).into(),
            in_doubt: BTreeSet::new(),
            gone_on: None,
            to_restart: BTreeSet::new(),
            unused: Vec::new(),
            loss: loss.then(|| PossibleLoss {
                after: end,
                unseen: vec![[1, 2, 3].map(MemberId).into()],
            }),
        }
    }

    #[test]
    fn a_plan_is_carried_out_only_when_all_was_said() {
        let id = identity(&plan(true));
        let table = [
            (plan(false), "", None),
            (
                plan(true),
                "",
                Some(
                    "it cannot be proven that member 3 has everything that was acknowledged: member 1, 2 may have more, and \
                     does not answer. Bring back one that is missing, even if only for its log; or accept that entries after \
                     3.1042 may be lost, with `--accept-loss 3.1042`",
                ),
            ),
            (plan(true), "--accept-loss 3.1042", None),
            (
                plan(true),
                "--accept-loss 3.1040",
                Some(
                    "entries after 3.1042 may be lost, not those after 3.1040; look at the plan again",
                ),
            ),
            (
                plan(true),
                &format!("--accept-loss 3.1042 --plan {id}"),
                None,
            ),
        ];
        for (plan, line, expected) in table {
            let said = may_apply(&args(line), &plan, &Directory::default());
            let failure = said.err();
            assert_eq!(
                failure.as_ref().map(|failure| failure.what.as_str()),
                expected
            );
            assert!(failure.is_none_or(|failure| failure.exit == Exit::Refused));
        }
        let other = may_apply(
            &args("--plan 00000000"),
            &plan(false),
            &Directory::default(),
        );
        let other = other.unwrap_err();
        let id = identity(&plan(false));
        assert_eq!(
            other.what,
            format!("the plan is {id} now, not 00000000; nothing was done")
        );
        assert_eq!(
            other.advice,
            format!("look at what has changed above, and give --plan {id} if it is right")
        );
    }

    #[test]
    fn a_plan_with_another_end_is_another_plan() {
        let mut other = plan(true);
        other.log_end = Some(OpId::new(3, 1043));
        assert_ne!(identity(&plan(true)), identity(&other));
        assert_eq!(identity(&plan(true)), identity(&plan(true)));
        assert_eq!(still_the_plan(&plan(true), &plan(true)), Ok(()));
        let failure = still_the_plan(&plan(true), &other).unwrap_err();
        let (before, now) = (identity(&plan(true)), identity(&other));
        assert_eq!(failure.exit, Exit::Refused);
        assert_eq!(
            failure.to_string(),
            format!(
                "the evidence has changed, and plan {before} has become {now}; nothing was done\n  look at the new \
                 plan with `witness quorum fix`"
            )
        );
    }
}

#[cfg(test)]
mod evidence_tests {
    use consensus::Term;
    use raft_types::MemberKind;
    use raft_types::Region;
    use raft_types::StoredMembership;
    use ring_admin::UnusedLog;

    use super::*;

    #[test]
    fn evidence_and_plan_can_be_read() {
        let place = |id: u64| MemberAddress {
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
            elects_from: None,
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
            gone_on: Some(OpId::new(1003, 0)),
            to_restart: [4].map(MemberId).into(),
            unused: [(4, WhyUnused::Shorter), (6, WhyUnused::Empty)]
                .map(|(id, why)| UnusedLog {
                    member: MemberId(id),
                    why,
                })
                .into(),
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

Plan: member 3 continues alone, in term 1003 or later. Its log ends at 3.1042, the longest of those that answer.
Lost: the quorum of member 1, member 2, member 3.
Missing: member 1, member 2. Make sure that they do not run where they cannot reach member 3. The plan does not use their logs: start those whose disks are intact, and make the plan again.
Logs that answer and are not used: member 4; they end before the survivor's.
Logs that answer and are not used: member 6; they are empty.
In doubt: member 5. The ends of their logs were damaged, and may have been acknowledged: they count as if they did not answer.
Gone on: the ring has gone on to 1003.0, as a member was told that answers, and no member that answers has that. Look for the one that has it first: the survivor of an earlier repair.
To be restarted afterwards, because they have committed entries that would be lost: member 4.
Data loss possible after 3.1042: the quorum of member 1, member 2, member 3 is in force or may be by now, and could have committed without a member that answers.
";
        assert_eq!(
            page(&evidence, Some(&plan), &Directory::default()),
            expected
        );
        plan.loss.as_mut().unwrap().unseen.clear();
        let text = page(&evidence, Some(&plan), &Directory::default());
        let last = "Data loss possible after 3.1042: what the ring has gone on to is not there.\n";
        assert!(text.ends_with(last), "{text}");
        plan.loss = None;
        let text = page(&evidence, Some(&plan), &Directory::default());
        assert!(text.contains("Data loss: none. Every quorum"), "{text}");
    }
}
