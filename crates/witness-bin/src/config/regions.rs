//! `[regions]` and the edges of `[[members]]`: how entries travel between regions.

use std::collections::BTreeMap;

use member::settings::RegionsSettings;
use proxy::{ProxyMode, ProxyOptions, check_edges};
use transport::Compression;

use super::problem::Problems;
use super::suggest::{listed, nearest};
use super::values::Values;

const PROXY: &str = "regions.proxy";
const EDGE: &str = "members.proxy_from";

pub(super) fn build(values: &Values, members: &[Values]) -> Option<RegionsSettings> {
    let mode = match values.text(PROXY)?.as_str() {
        "off" => ProxyMode::Off,
        "edges" => ProxyMode::Edges(edges(members)?),
        _ => ProxyMode::Region,
    };
    let level = i32::try_from(values.number("regions.compression_level")?).ok()?;
    let min_bytes = values.number("regions.compression_min_bytes")?;
    Some(RegionsSettings {
        proxy: ProxyOptions {
            mode,
            wait: values.duration("regions.proxy_wait")?,
            max_hops: usize::try_from(values.number("regions.proxy_max_hops")?).ok()?,
        },
        compression: (level > 0).then_some(Compression {
            level,
            min_bytes: usize::try_from(min_bytes).ok()?,
        }),
    })
}

/// From each member with an edge to the one that sends on to it; none when a value cannot be read.
fn edges(members: &[Values]) -> Option<BTreeMap<String, String>> {
    let mut edges = BTreeMap::new();
    for member in members {
        let from = member.text(EDGE)?;
        if !from.is_empty() {
            edges.insert(member.text("members.name")?, from);
        }
    }
    Some(edges)
}

/// Records every broken rule.
pub(super) fn check(values: &Values, members: &[Values], problems: &mut Problems) {
    let names = members.iter().map(|member| member.text("members.name"));
    let (Some(mode), Some(names)) = (values.text(PROXY), names.collect::<Option<Vec<_>>>()) else {
        return;
    };
    let by_edges = mode == "edges";
    for member in members {
        let from = member.text(EDGE).unwrap_or_default();
        if from.is_empty() {
            continue;
        }
        if !by_edges {
            problems.warning(
                member.report_at(EDGE),
                EDGE,
                format!("`proxy_from` is not looked at while `{PROXY}` is `{mode}`"),
                format!("set `{PROXY}` to \"edges\", or remove the line"),
            );
        } else if !names.contains(&from) {
            let advice = match nearest(&from, names.iter().map(String::as_str)) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!(
                    "the members are {}",
                    listed(names.iter().map(String::as_str))
                ),
            };
            let found = format!("`proxy_from` names `{from}`, and no member has that name");
            problems.error(member.report_at(EDGE), EDGE, found, advice);
        }
    }
    let limit = values.number("regions.proxy_max_hops");
    let limit = limit.and_then(|limit| usize::try_from(limit).ok());
    let (Some(edges), Some(limit)) = (edges(members).filter(|_| by_edges), limit) else {
        return;
    };
    if edges.is_empty() {
        problems.warning(
            values.report_at(PROXY),
            PROXY,
            "`regions.proxy` is `edges`, and no member has a `proxy_from`: nothing is proxied",
            "add `proxy_from` to `[[members]]` entries, or choose `region` or `off`",
        );
    }
    if let Err(error) = check_edges(&edges, limit) {
        problems.error(
            values.report_at(PROXY),
            EDGE,
            error.to_string(),
            "edges lead from every member towards one that gets its entries from the leader",
        );
    }
}
