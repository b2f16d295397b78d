//! `witness quorum set`: changes the rules of the quorum, in the ring's log.

use std::collections::{BTreeMap, BTreeSet};

use clap::ValueEnum;
use consensus::quorum::{QuorumPolicy, RingRules};
use member::protocol::{CommandResult, OperatorCommand};
use raft_types::{MemberId, Region};
use ring_admin::{Amendment, RulesChange};
use serde_json::json;

use crate::cli::session::{ChangeArgs, OrderArgs, another_answer, changed};
use crate::config::Mistake;
use crate::terminal::{Attempt, Exit, Format, print};

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
/// Exit 3 without a leader, 4 when it is refused, 5 when its result is unknown.
pub(crate) fn run(args: &SetArgs, format: Format) -> Attempt {
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
        print(format, &json, || page(&done))
    })
}

fn page(done: &Amendment<RingRules>) -> String {
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
