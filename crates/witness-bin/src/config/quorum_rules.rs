//! What `[quorum]` and the regions of the members mean together. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::problem::Problems;
use super::suggest::{listed, nearest};
use super::values::Values;

const POLICY: &str = "quorum.policy";
const REGIONS: &str = "quorum.regions";
const PREFERENCE: &str = "quorum.region_preference";

/// Records every broken rule.
pub(crate) fn check(values: &Values, members: &[Values], problems: &mut Problems) {
    let Some(policy) = values.text(POLICY) else {
        return;
    };
    let Some(voters) = voters_by_region(members) else {
        return;
    };
    listed_once(values, problems);
    match (policy.as_str(), values.list(REGIONS)) {
        ("regions", Some(regions)) if regions.is_empty() => problems.error(
            values.report_at(POLICY),
            REGIONS,
            "`quorum.policy` is `regions`, but `quorum.regions` names none",
            "list the regions of which every commit needs a majority, or choose another policy",
        ),
        ("regions", Some(regions)) => {
            for region in regions {
                required(&region, &voters, values, problems);
            }
        }
        (_, Some(regions)) if !regions.is_empty() => problems.warning(
            values.report_at(REGIONS),
            REGIONS,
            format!("`quorum.regions` is not looked at with the policy `{policy}`"),
            "set `quorum.policy` to \"regions\", or remove the line",
        ),
        _ => {}
    }
    for region in values.list(PREFERENCE).unwrap_or_default() {
        if !voters.contains_key(&region) {
            problems.warning(
                values.report_at(PREFERENCE),
                PREFERENCE,
                format!("`{PREFERENCE}` names `{region}`, and no member runs there"),
                did_you_mean(&region, &voters),
            );
        }
    }
    if policy == "single-region-dynamic" {
        thin_regions(members, &voters, problems);
    }
}

/// Voting members by region, regions without any among them; none when one cannot be read.
fn voters_by_region(members: &[Values]) -> Option<BTreeMap<String, usize>> {
    let mut voters = BTreeMap::new();
    for member in members {
        let votes = member.bool("members.votes")?;
        *voters.entry(member.text("members.region")?).or_default() += usize::from(votes);
    }
    Some(voters)
}

fn listed_once(values: &Values, problems: &mut Problems) {
    for key in [REGIONS, PREFERENCE] {
        let mut seen = BTreeSet::new();
        for region in values.list(key).unwrap_or_default() {
            if !seen.insert(region.clone()) {
                problems.error(
                    values.report_at(key),
                    key,
                    format!("`{key}` names `{region}` twice"),
                    "name every region once",
                );
            }
        }
    }
}

fn required(
    region: &str,
    voters: &BTreeMap<String, usize>,
    values: &Values,
    problems: &mut Problems,
) {
    match voters.get(region) {
        None => problems.error(
            values.report_at(REGIONS),
            REGIONS,
            format!("`{REGIONS}` names `{region}`, and no member runs there"),
            did_you_mean(region, voters),
        ),
        Some(0) => problems.error(
            values.report_at(REGIONS),
            REGIONS,
            format!("`{REGIONS}` names `{region}`, and no member there votes"),
            "let members there vote, better three, or remove the region from the list",
        ),
        Some(_) => {}
    }
}

fn did_you_mean(region: &str, voters: &BTreeMap<String, usize>) -> String {
    let known = || voters.keys().map(String::as_str);
    match nearest(region, known()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the members' regions are {}", listed(known())),
    }
}

/// A region that may lead decides its commits alone, so it should bear the loss of one member.
fn thin_regions(members: &[Values], voters: &BTreeMap<String, usize>, problems: &mut Problems) {
    if voters.values().sum::<usize>() <= 2 {
        // Told already, for the ring as a whole.
        return;
    }
    for (region, count) in voters.iter().filter(|(_, count)| (1..3).contains(*count)) {
        let first = members.iter().find(|member| {
            member.text("members.region").as_ref() == Some(region)
                && member.text("members.kind").as_deref() == Some("database")
                && member.bool("members.votes") == Some(true)
                && member.number("members.priority") != Some(0)
        });
        let Some(first) = first else { continue };
        let (words, whom) = match count {
            1 => ("one voting member", "its"),
            _ => ("two voting members", "either's"),
        };
        problems.warning(
            &first.place,
            "members.votes",
            format!("region `{region}` has {words}, so {whom} loss stops every commit while that region leads"),
            "let three vote there, a witness is enough; or give its database member the priority 0",
        );
    }
}
