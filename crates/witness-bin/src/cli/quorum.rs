//! `witness quorum`: shows the voters of each region, which of them answer, and which one delays commits; changes the rules of the quorum;
//! repairs a permanently lost quorum.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::ValueEnum;
use consensus::quorum::{QuorumPolicy, RegionQuorum, RingRules, region_quorums};
use consensus::{RingMember, RingView};
use member::protocol::{CommandResult, OperatorCommand};
use member::settings::MemberEntry;
use member::status::MemberView;
use raft_types::{MemberId, OpId, Region};
use ring_admin::{
    Amendment, MemberEvidence, PossibleLoss, RepairPlan, RepairRefusal, RulesChange, WhyUnused,
    accept_repair, plan_repair,
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cli::session::{
    ChangeArgs, Consent, OrderArgs, QueryArgs, Session, another_answer, changed,
};
use crate::config::Mistake;
use crate::operator::{Directory, RingReport, latest};
use crate::terminal::{Attempt, Exit, Format, Table, cell, print, print_json, print_text, yes_no};
use crate::text::{capitalized, lines, ring};

/// Actions on the quorum.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum QuorumCommand {
    /// Show for each region who votes, who answers, and who holds commits back
    Show(QueryArgs),
    /// Change what commits wait for, while the ring runs
    Set(SetArgs),
    /// Repair a quorum that is permanently lost; shows the evidence and the plan, and changes nothing without --apply
    Fix(FixArgs),
}

/// Runs `witness quorum …`.
///
/// # Errors
/// The errors of the subcommand.
pub(crate) fn run(command: &QuorumCommand, format: Format) -> Attempt {
    match command {
        QuorumCommand::Show(query) => show(query, format),
        QuorumCommand::Set(args) => set(args, format),
        QuorumCommand::Fix(args) => fix(args, format),
    }
}

/// Runs `witness quorum show`.
///
/// # Errors
/// Exit 3 if no member answers, or no member leads with a quorum.
fn show(query: &QueryArgs, format: Format) -> Attempt {
    let (report, directory) = query.answers()?;
    let (json, page) = shown(&report, &directory);
    print(format, &json, || page)?;
    Exit::NoQuorum.unless(report.quorum.ok)
}

/// Returns the output as JSON and as text.
fn shown(report: &RingReport, directory: &Directory) -> (Value, String) {
    let latest = latest(&report.members);
    let leader = report.leader_view();
    // The leader's view; without a leader, the view of the member with the longest log.
    let seen = leader.or(latest);
    let regions = match (leader, latest) {
        (Some(leader), _) => leader.regions.clone(),
        (None, Some(latest)) => from_outside(report, latest),
        (None, None) => Vec::new(),
    };
    let policy = seen.map_or_else(String::new, |view| view.rules.policy.to_string());
    let explanation = leader.and_then(|view| view.explanation.as_ref());
    // The requirements of a commit, and the leader's intended change of the quorum.
    let commit = explanation.map(|why| directory.with_names(&why.commit));
    let wanted = explanation.and_then(|why| why.quorum.as_ref());
    let wanted = wanted.map(|wanted| directory.with_names(wanted));
    let json = json!({
        "ring": report.ring,
        "leader": report.leader,
        "policy": policy,
        "voter_sets": seen.map_or(&[][..], |view| &view.voter_sets),
        "regions": regions,
        "commit": commit,
        "wanted": wanted,
        "cause": report.quorum.cause,
        "fix": report.quorum.fix,
        "warnings": report.warnings,
    });
    let mut table =
        Table::titled("Region Voters Healthy Required Decides Majority_has Any_has Held_back_by");
    for region in &regions {
        table.row(vec![
            region.region.to_string(),
            region.voters.len().to_string(),
            region.healthy.len().to_string(),
            region.required.to_string(),
            yes_no(region.in_force),
            cell(region.held_by_majority),
            cell(region.held_by_any),
            cell(region.held_back_by.map(|id| directory.name(id))),
        ]);
    }
    let mut lines = Vec::new();
    if let Some(leader) = report.leader {
        let leader = directory.name(leader);
        let ring = &report.ring;
        lines.push(format!(
            "{leader} leads ring `{ring}`; the policy is {policy}"
        ));
    } else {
        let said = ring::quorum(report);
        lines.push(format!("{}{}", said.begins, said.rest));
        let fix = report.quorum.fix.as_ref();
        lines.extend(fix.map(|fix| format!("To fix it: {fix}")));
    }
    lines.extend(
        [commit, wanted]
            .iter()
            .flatten()
            .map(|text| capitalized(text)),
    );
    let warnings = report.warnings.iter();
    lines.extend(warnings.map(|warning| format!("Warning: {warning}")));
    (json, format!("{table}\n{}\n", lines.join("\n")))
}

/// Returns the state of each region of a ring without a leader, from the members that answered and the ends of their logs.
fn from_outside(report: &RingReport, latest: &MemberView) -> Vec<RegionQuorum> {
    let view_of = |id: MemberId| report.member(id)?.view.as_ref();
    let members = latest.members.iter().map(|logged| RingMember {
        id: logged.id,
        record: logged.record.clone(),
        voter: logged.voter,
        matched: view_of(logged.id).and_then(|view| view.log_end),
        lag: None,
        answered: view_of(logged.id).map(|_| Duration::ZERO),
        needs_purged_entries: false,
    });
    let view = RingView {
        own: latest.member.id,
        leads: false,
        is_interim: false,
        lease: Duration::from_secs(1),
        leader: None,
        last_log: latest.log_end,
        voter_sets: latest.voter_sets.clone(),
        members: members.collect(),
    };
    region_quorums(&view)
}

// `witness quorum set`: changes the rules of the quorum in the ring's log.

/// Arguments of `witness quorum set`.
#[derive(Debug, clap::Args)]
pub(crate) struct SetArgs {
    /// What a commit needs, as `quorum.policy`
    #[arg(long, value_enum)]
    policy: Option<Policy>,
    /// For the policy `regions`: of which regions a commit needs a majority in each
    #[arg(
        long,
        value_name = "REGION,…",
        value_delimiter = ',',
        requires = "policy"
    )]
    regions: Vec<String>,
    /// For the policy `regions`: in how many of them, the leader's among them; without: in all
    #[arg(long, value_name = "K", requires = "regions")]
    required: Option<usize>,
    /// Regions in the order in which a leader is looked for, as `quorum.region_preference`
    #[arg(long, value_name = "REGION,…", value_delimiter = ',')]
    prefer: Option<Vec<String>>,
    /// Expected number of voting members of a region: no commit is decided there by fewer than a majority of this number.
    /// 0: no expectation
    #[arg(long, value_name = "REGION=N", value_parser = expectation)]
    expect: Vec<(Region, usize)>,
    #[command(flatten)]
    change: ChangeArgs,
    #[command(flatten)]
    order: OrderArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Policy {
    /// A majority of the leader's region, which follows the leader
    SingleRegionDynamic,
    /// A majority of all voting members
    Majority,
    /// A majority in each of the regions, or in each of some of them
    Regions,
}

fn expectation(text: &str) -> Result<(Region, usize), Mistake> {
    let parsed = text
        .split_once('=')
        .and_then(|(region, voters)| Some((Region(region.to_owned()), voters.parse().ok()?)));
    let valid = parsed.filter(|(region, _)| !region.0.is_empty());
    valid.ok_or_else(|| Mistake::new("no expectation", "write it as REGION=N, as in north=3"))
}

impl SetArgs {
    fn rules_change(&self) -> Attempt<RulesChange> {
        let usage = |what: &str, advice: &str| Err(Exit::Usage.because(what, advice));
        let regions = || self.regions.iter().cloned().map(Region).collect();
        let policy = match (self.policy, self.required) {
            (Some(Policy::Regions), _) if self.regions.is_empty() => {
                return usage("the policy `regions` needs regions", "give --regions a,b");
            }
            (Some(Policy::Regions), Some(required)) if required < self.regions.len() => {
                let regions = regions();
                Some(QuorumPolicy::SomeRegions { required, regions })
            }
            (Some(Policy::Regions), _) => Some(QuorumPolicy::Regions(regions())),
            (_, _) if !self.regions.is_empty() => {
                return usage(
                    "--regions belongs to --policy regions",
                    "leave one of them out",
                );
            }
            (Some(Policy::SingleRegionDynamic), _) => Some(QuorumPolicy::SingleRegionDynamic),
            (Some(Policy::Majority), _) => Some(QuorumPolicy::Majority),
            (None, _) => None,
        };
        let prefer = self.prefer.clone();
        let change = RulesChange {
            policy,
            region_preference: prefer.map(|regions| regions.into_iter().map(Region).collect()),
            expected_voters: self.expect.iter().cloned().collect(),
        };
        if change == RulesChange::default() {
            return usage(
                "there is nothing to change",
                "give --policy, --prefer or --expect",
            );
        }
        Ok(change)
    }
}

/// Runs `witness quorum set`.
///
/// # Errors
/// Exit 3 without a leader, 4 if the command is refused, 5 if the result is unknown.
fn set(args: &SetArgs, format: Format) -> Attempt {
    let change = args.rules_change()?;
    args.order.session(format, async |ring| {
        let question = "Change the rules of the quorum? (--dry-run shows what would follow)";
        args.change.confirm(question)?;
        let dry_run = args.change.dry_run;
        let command = OperatorCommand::SetRules { change, dry_run };
        let done = match ring.order(command).await? {
            CommandResult::RulesSet(done) => done,
            other => return Err(another_answer(&other)),
        };
        let mut json = json!(done);
        json["dry_run"] = json!(dry_run);
        print(format, &json, || changed_rules(&done))
    })
}

fn changed_rules(done: &Amendment<RingRules>) -> String {
    let regions = |of: &[Region]| {
        let names: Vec<&str> = of.iter().map(|region| region.0.as_str()).collect();
        format!("[{}]", names.join(", "))
    };
    let expected = |of: &BTreeMap<Region, usize>| {
        let each = of
            .iter()
            .map(|(region, voters)| format!("{region}={voters}"));
        format!("[{}]", each.collect::<Vec<_>>().join(", "))
    };
    let values = |rules: &RingRules| {
        [
            ("policy", rules.policy.to_string()),
            ("region_preference", regions(&rules.region_preference)),
            ("expected voters", expected(&rules.expected_voters)),
        ]
    };
    let pairs = values(&done.before).into_iter().zip(values(&done.after));
    let changes = pairs.map(|((what, before), (_, after))| changed(what, &before, &after));
    let changes: String = changes.collect();
    let voter_sets = changed("voter sets", &sets(&done.sets), &sets(&done.wanted));
    let end = match done.entry {
        Some(entry) => format!(
            "Entry {entry} of the ring's log has the new rules, and the quorum follows; change [quorum] in every member's file as well\n"
        ),
        None => "Nothing was changed; without --dry-run the rules would be as shown\n".to_owned(),
    };
    format!("{changes}{voter_sets}{end}")
}

fn sets(sets: &[BTreeSet<MemberId>]) -> String {
    let set = |set: &BTreeSet<MemberId>| {
        let ids: Vec<String> = set.iter().map(ToString::to_string).collect();
        format!("{{{}}}", ids.join(" "))
    };
    sets.iter().map(set).collect::<Vec<_>>().join(" and ")
}

// `witness quorum fix`: repairs a permanently lost quorum. It queries every member for evidence, also without a leader, and shows the
// evidence and the plan. With `--apply`, it executes the plan.

/// Arguments of `witness quorum fix`.
#[derive(Debug, clap::Args)]
pub(crate) struct FixArgs {
    /// Carry the plan out
    #[arg(long)]
    apply: bool,
    /// The plan that was shown; another one is not carried out
    #[arg(long, value_name = "PLAN")]
    plan: Option<String>,
    /// The last entry that is sure to be kept, as the plan names it: what came after it may be lost
    #[arg(long, value_name = "OP_ID")]
    accept_loss: Option<OpId>,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    order: OrderArgs,
}

/// Time limit for all members to return their evidence.
const EVIDENCE_PATIENCE: Duration = Duration::from_secs(2);

/// Runs `witness quorum fix`.
///
/// # Errors
/// Exit 4 if there is nothing to repair, a possible loss was not accepted, or the plan has changed since it was shown; 3 if no member
/// answers, 5 if the result is unknown.
fn fix(args: &FixArgs, format: Format) -> Attempt {
    args.order.session(format, async |ring| {
        let directory = &ring.directory;
        let evidence = gather(&ring).await;
        let planned = plan_of(&evidence);
        if format == Format::Table {
            print_text(&evidence_page(&evidence, planned.as_ref().ok(), directory))?;
        }
        let plan = planned.map_err(|refusal| directory.failure(&refusal.into()))?;
        let plan_id = identity(&plan);
        // `refusal` is why the plan was not or would not be executed. `applied` is the log entry with the repair, and `leader` the leader
        // after it.
        let json = |refusal: Option<&str>, applied: Option<OpId>, leader: Option<MemberId>| {
            json!({
                "evidence": evidence,
                "plan_id": plan_id,
                "plan": plan,
                "refusal": refusal,
                "applied": applied,
                "leader": leader,
            })
        };
        if let Err(failure) = may_apply(args, &plan, directory) {
            if format == Format::Json {
                print_json(&json(Some(failure.what.as_str()), None, None))?;
            }
            return Err(failure);
        }
        if !args.apply {
            return print(format, &json(None, None, None), || dry_run(args, &plan_id));
        }
        confirmed(args, &ring, &plan).await?;
        let until = ring.until();
        let entry = apply(args, &ring, &plan).await?;
        let leader = ring.leader(until).await;
        print(format, &json(None, Some(entry), leader), || {
            end(&plan, entry, leader, directory)
        })?;
        match leader {
            Some(_) => Ok(()),
            None => Err(Exit::Unknown.because(
                "the repair is in the log, but no member serves as the leader yet",
                "check with `witness status`",
            )),
        }
    })
}

/// Queries every known member for its evidence, all concurrently.
async fn gather(ring: &Session) -> Vec<Evidence> {
    let until = Instant::now() + EVIDENCE_PATIENCE;
    let asked = ring.directory.places().map(async |place| {
        let mut answer = Evidence::without(place);
        match ring
            .at_until(place, &OperatorCommand::Evidence, until)
            .await
        {
            Ok(CommandResult::Evidence(evidence)) => answer.evidence = Some(*evidence),
            Ok(other) => answer.error = Some(another_answer(&other).what),
            Err(failure) => {
                let member = ring.report.member(place.id);
                let silence = member.and_then(|member| member.error.clone());
                answer.error = Some(silence.unwrap_or(failure.what));
            }
        }
        answer
    });
    futures::future::join_all(asked).await
}

fn plan_of(evidence: &[Evidence]) -> Result<RepairPlan, RepairRefusal> {
    let given = evidence.iter().filter_map(|one| one.evidence.clone());
    plan_repair(&given.collect::<Vec<_>>())
}

/// Checks that the options on the command line fit the plan, and accept its possible loss.
fn may_apply(args: &FixArgs, plan: &RepairPlan, directory: &Directory) -> Attempt {
    let id = identity(plan);
    if let Some(shown) = args.plan.as_ref().filter(|shown| **shown != id) {
        return Err(Exit::Refused.because(
            format!("the plan is {id} now, not {shown}; nothing was done"),
            format!("check the changes above, and give --plan {id} if it is right"),
        ));
    }
    accept_repair(plan, args.accept_loss).map_err(|refusal| directory.failure(&refusal.into()))
}

/// Returns the identity of a plan: a checksum of its actions, members and evidence.
fn identity(plan: &RepairPlan) -> String {
    // A plan has only plain values, which can always be serialized.
    let json = serde_json::to_vec(plan).unwrap_or_default();
    format!("{:08x}", crc32c::crc32c(&json))
}

fn dry_run(args: &FixArgs, plan_id: &str) -> String {
    let loss = args.accept_loss;
    let loss = loss.map_or_else(String::new, |loss| format!(" --accept-loss {loss}"));
    format!(
        "\nNothing was done. To carry it out: witness quorum fix --apply --plan {plan_id}{loss}\n"
    )
}

/// Asks the operator for confirmation, without a time limit. Then it queries all members again, and checks that the plan is unchanged.
async fn confirmed(args: &FixArgs, ring: &Session, plan: &RepairPlan) -> Attempt {
    let directory = &ring.directory;
    args.consent.to(&format!(
        "Let {} continue alone as plan {} says? Members that did not answer must not run a quorum of their own.",
        directory.name(plan.survivor),
        identity(plan)
    ))?;
    let now = plan_of(&gather(ring).await);
    let now = now.map_err(|refusal| directory.failure(&refusal.into()))?;
    still_the_plan(plan, &now)
}

fn still_the_plan(plan: &RepairPlan, now: &RepairPlan) -> Attempt {
    if plan == now {
        return Ok(());
    }
    Err(Exit::Refused.because(
        format!(
            "the evidence has changed, and plan {} has become {}; nothing was done",
            identity(plan),
            identity(now)
        ),
        "see the new plan with `witness quorum fix`",
    ))
}

async fn apply(args: &FixArgs, ring: &Session, plan: &RepairPlan) -> Attempt<OpId> {
    let place = ring.directory.get(plan.survivor).ok_or_else(|| {
        let survivor = ring.directory.name(plan.survivor);
        Exit::Refused.because(
            format!("the address of {survivor} is not known"),
            "add it to [[members]] of this configuration",
        )
    })?;
    let command = OperatorCommand::RepairQuorum {
        plan: plan.clone(),
        accepted_loss: args.accept_loss,
    };
    match ring.at(place, command).await? {
        CommandResult::Repaired(entry) => Ok(entry),
        other => Err(another_answer(&other)),
    }
}

fn end(plan: &RepairPlan, entry: OpId, leader: Option<MemberId>, directory: &Directory) -> String {
    let survivor = directory.name(plan.survivor);
    let mut text = format!("\nThe quorum is {survivor} alone since entry {entry}.\n");
    if let Some(leader) = leader {
        text += &format!("{} leads, and commits continue.\n", directory.name(leader));
    }
    text + &lines("", steps(plan, directory))
}

/// Returns the names of members, separated by commas.
fn names<'a>(ids: impl IntoIterator<Item = &'a MemberId>, directory: &Directory) -> String {
    let names = ids.into_iter().map(|id| directory.name(*id));
    names.collect::<Vec<_>>().join(", ")
}

/// Returns the tasks of the operator after a repair.
fn steps(plan: &RepairPlan, directory: &Directory) -> Vec<String> {
    let mut steps = Vec::new();
    if !plan.to_restart.is_empty() {
        steps.push(format!(
            "Restart {}: their entries beyond the repair are cut back at their start.",
            names(&plan.to_restart, directory)
        ));
    }
    if !plan.missing.is_empty() {
        steps.push(format!(
            "Remove {} with `witness members remove`, and add members in their place; or start them where they reach \
             the others: they cut their logs back.",
            names(&plan.missing, directory)
        ));
    }
    steps
}

/// One member's evidence for the repair of the quorum, or why there is none.
#[derive(Debug, Serialize)]
struct Evidence {
    id: MemberId,
    name: String,
    region: String,
    error: Option<String>,
    evidence: Option<MemberEvidence>,
}

impl Evidence {
    fn without(place: &MemberEntry) -> Self {
        Self {
            id: place.id,
            name: place.name.clone(),
            region: place.region.to_string(),
            error: None,
            evidence: None,
        }
    }
}

/// Returns the evidence as a table, followed by the plan, if there is one.
fn evidence_page(
    evidence: &[Evidence],
    plan: Option<&RepairPlan>,
    directory: &Directory,
) -> String {
    let mut table = Table::titled("Id Name Region Answers Term Log_end Committed Leader");
    for one in evidence {
        let answer = one.evidence.as_ref();
        let leader = answer.and_then(|answer| answer.leader);
        table.row(vec![
            one.id.to_string(),
            one.name.clone(),
            one.region.clone(),
            yes_no(answer.is_some()),
            cell(answer.map(|answer| answer.term)),
            cell(answer.and_then(|answer| answer.log_end)),
            cell(answer.and_then(|answer| answer.committed)),
            cell(leader.map(|leader| directory.name(leader))),
        ]);
    }
    let mut text = table.to_string();
    for one in evidence {
        if let Some(error) = &one.error {
            text += &format!("{}: {error}\n", one.name);
        }
    }
    if let Some(plan) = plan {
        text += &format!("\n{}\n", describe(plan, directory).join("\n"));
    }
    text
}

fn describe(plan: &RepairPlan, directory: &Directory) -> Vec<String> {
    let names = |ids: &BTreeSet<MemberId>| names(ids, directory);
    let end = plan
        .log_end
        .map_or_else(|| "is empty".to_owned(), |end| format!("ends at {end}"));
    let mut lines = vec![format!(
        "Plan: {} continues alone, in term {} or later. Its log {end}, the longest of those that answer.",
        directory.name(plan.survivor),
        plan.term
    )];
    for set in &plan.lost {
        lines.push(format!("Lost: the quorum of {}.", names(set)));
    }
    if !plan.missing.is_empty() {
        lines.push(format!(
            "Missing: {}. Make sure that they do not run where they cannot reach {}. The plan does not use their logs: start those whose \
             disks are intact, and make the plan again.",
            names(&plan.missing),
            directory.name(plan.survivor)
        ));
    }
    for (why, reason) in [
        (WhyUnused::Shorter, "they end before the survivor's"),
        (WhyUnused::SameEnd, "they end where the survivor's ends"),
        (WhyUnused::Empty, "they are empty"),
    ] {
        let unused = plan.unused.iter().filter(|log| log.why == why);
        let unused: BTreeSet<_> = unused.map(|log| log.member).collect();
        if !unused.is_empty() {
            lines.push(format!(
                "Logs that answer and are not used: {}; {reason}.",
                names(&unused)
            ));
        }
    }
    if !plan.in_doubt.is_empty() {
        lines.push(format!(
            "In doubt: {}. The ends of their logs were damaged, and may have been acknowledged: they count as if they did not answer.",
            names(&plan.in_doubt)
        ));
    }
    if let Some(end) = plan.gone_on {
        lines.push(format!(
            "Later entries: the ring has reached {end}, as a member that answers has recorded, and no member that answers has that entry. \
             Find the member with it first: the survivor of an earlier repair."
        ));
    }
    if !plan.to_restart.is_empty() {
        lines.push(format!(
            "To be restarted afterwards, because they have committed entries that would be lost: {}.",
            names(&plan.to_restart)
        ));
    }
    lines.push(match &plan.loss {
        None => "Data loss: none. Every quorum that may have committed includes a member that answers."
            .to_owned(),
        Some(loss) if loss.unseen.is_empty() => format!(
            "Data loss possible after {}: the ring's later entries are missing.",
            end_of(loss)
        ),
        Some(loss) => {
            let sets = loss.unseen.iter().map(names);
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
    use consensus::Term;
    use member::status::sample::{database_leader, witness_follower};
    use raft_types::{OpId, Region, StoredMembership};
    use ring_admin::{Explanation, UnusedLog};

    use super::*;
    use crate::operator::MemberReport;

    fn report(leader: Result<MemberView, String>) -> RingReport {
        RingReport::new(
            "orders",
            vec![
                MemberReport::sample(1, "db-1", leader),
                MemberReport::sample(2, "witness-1", Ok(witness_follower())),
                MemberReport::sample(3, "witness-2", Err("gone".into())),
            ],
        )
    }

    #[test]
    fn the_leader_names_the_member_that_holds_commits_back() {
        let mut leader = database_leader();
        leader.regions = vec![RegionQuorum {
            region: Region("north".into()),
            voters: [1, 2, 3].map(MemberId).into(),
            healthy: [1, 2].map(MemberId).into(),
            required: 2,
            in_force: true,
            held_by_majority: Some(OpId::new(3, 40)),
            held_by_any: Some(OpId::new(3, 41)),
            held_back_by: Some(MemberId(2)),
        }];
        leader.explanation = Some(Explanation {
            commit: "a commit waits for 2 of the 3 voters of region north (members 1, 2, 3)".into(),
            quorum: None,
            members: Vec::new(),
        });
        let report = report(Ok(leader));
        let directory = Directory::of(&report);
        let expected = "\
Region  Voters  Healthy  Required  Decides  Majority_has  Any_has  Held_back_by
north        3        2         2  yes              3.40     3.41  `witness-1`

`db-1` leads ring `orders`; the policy is single-region-dynamic
A commit waits for 2 of the 3 voters of region north (members 1 `db-1`, 2 `witness-1`, 3 `witness-2`)
";
        assert_eq!(shown(&report, &directory).1, expected);
    }

    #[test]
    fn without_a_leader_the_answers_of_all_members_are_used() {
        let report = report(Err("gone".into()));
        let directory = Directory::of(&report);
        let expected = "\
Region  Voters  Healthy  Required  Decides  Majority_has  Any_has  Held_back_by
north        3        1         2  yes                 -     3.42  `witness-2`

No quorum: 1 of 3 voters answer and 2 are needed. Commits wait.
To fix it: start witness on `db-1` (10.0.0.1:7400) or `witness-2` (10.0.0.3:7400) (`systemctl start witness`, or `witness run`); if they are permanently lost, see `witness quorum fix`
";
        assert_eq!(shown(&report, &directory).1, expected);
    }

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
    fn a_plan_is_applied_only_with_all_options() {
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
            format!("check the changes above, and give --plan {id} if it is right")
        );
    }

    #[test]
    fn the_identity_of_a_plan_depends_on_its_end() {
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
                "the evidence has changed, and plan {before} has become {now}; nothing was done\n  see the new \
             plan with `witness quorum fix`"
            )
        );
    }

    #[test]
    fn evidence_and_plan_are_shown_as_a_page() {
        let gone = || Err("gone".into());
        let place = |id: u64| MemberReport::sample(id, &format!("w-{id}"), gone()).entry;
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
            Evidence {
                error: Some("no answer within 2s".into()),
                ..Evidence::without(&place(1))
            },
            Evidence {
                evidence: Some(said),
                ..Evidence::without(&place(3))
            },
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
Later entries: the ring has reached 1003.0, as a member that answers has recorded, and no member that answers has that entry. Find the member with it first: the survivor of an earlier repair.
To be restarted afterwards, because they have committed entries that would be lost: member 4.
Data loss possible after 3.1042: the quorum of member 1, member 2, member 3 is in force or may be by now, and could have committed without a member that answers.
";
        assert_eq!(
            evidence_page(&evidence, Some(&plan), &Directory::default()),
            expected
        );
        plan.loss.as_mut().unwrap().unseen.clear();
        let text = evidence_page(&evidence, Some(&plan), &Directory::default());
        let last = "Data loss possible after 3.1042: the ring's later entries are missing.\n";
        assert!(text.ends_with(last), "{text}");
        plan.loss = None;
        let text = evidence_page(&evidence, Some(&plan), &Directory::default());
        assert!(text.contains("Data loss: none. Every quorum"), "{text}");
    }
}
