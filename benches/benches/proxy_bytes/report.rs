//! Computes medians over the rounds and shares from samples, and from these the printed tables and the figures. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::Serialize;
use testkit::figures::Figures;
use testkit::statistics::Spread;

use crate::load::{Load, Sample};
use crate::variant::Variant;

/// A value with and without proxies.
#[derive(Clone, Copy, Debug, Serialize)]
struct Both {
    vanilla: Spread,
    proxied: Spread,
}

/// The results for entries of one size with one load. Only values of the same round are compared.
#[derive(Clone, Debug, Serialize)]
struct Row {
    entry_bytes: usize,
    load: Load,
    load_in_words: String,
    destination_bytes_per_commit: Both,
    destination_messages_per_commit: Both,
    /// The parts of the destination's traffic that are messages to and from its proxy.
    said_to_proxy_bytes_per_commit: Spread,
    said_by_proxy_bytes_per_commit: Spread,
    region_bytes_per_commit: Both,
    proxied_share_of_vanilla: Spread,
    proxied_share_of_vanilla_with_tcp_ip_headers: Spread,
    region_share_of_vanilla: Spread,
    commits_per_s: Both,
    commit_p50_ms: Both,
    commit_p99_ms: Both,
    lag_p50_ms: Both,
    lag_p99_ms: Both,
    lag_p50_added_ms: Spread,
    fallbacks: u64,
}

/// All results.
pub(crate) struct Report(Vec<Row>);

impl Report {
    /// Creates the report. Samples of one variant, size and load must be in the order of the rounds.
    pub(crate) fn of(samples: &[Sample], sizes: &[usize]) -> Result<Self> {
        let mut rows = Vec::new();
        for &size in sizes {
            for load in Load::BOTH {
                rows.push(row(samples, size, load).context("nothing was measured")?);
            }
        }
        Ok(Self(rows))
    }

    /// Adds the results to the figures.
    pub(crate) fn put_into(&self, figures: &mut Figures) -> Result<()> {
        figures.set("proxied_share_of_vanilla", self.shares(Load::Low))?;
        let by_load = Load::BOTH.map(|load| (load.name(), self.shares(load)));
        figures.set("proxied_share_of_vanilla_by_load", BTreeMap::from(by_load))?;
        figures.set("rows", &self.0)
    }

    /// Returns the share of bytes with proxies, by entry size.
    fn shares(&self, load: Load) -> BTreeMap<String, Spread> {
        let rows = self.0.iter().filter(|row| row.load == load);
        rows.map(|row| (row.entry_bytes.to_string(), row.proxied_share_of_vanilla))
            .collect()
    }

    /// Returns the tables, for the terminal and for a document.
    pub(crate) fn tables(&self) -> String {
        let mut text = String::new();
        text.push_str(
            "Across regions, per commit, both directions; vanilla → proxied:\n\n\
             | entry B | load | bytes to a destination | of these to and by its proxy | share | with TCP/IP headers | bytes to a region | share | messages to a destination |\n\
             |---:|---|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        for row in &self.0 {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {:.1}, {:.1} | **{}** | {} | {} | {} | {} |",
                row.entry_bytes,
                row.load_in_words,
                arrow(row.destination_bytes_per_commit, 1),
                row.said_to_proxy_bytes_per_commit.median,
                row.said_by_proxy_bytes_per_commit.median,
                percent(row.proxied_share_of_vanilla),
                percent(row.proxied_share_of_vanilla_with_tcp_ip_headers),
                arrow(row.region_bytes_per_commit, 0),
                percent(row.region_share_of_vanilla),
                arrow(row.destination_messages_per_commit, 2),
            );
        }
        text.push_str(
            "\nTimes; vanilla → proxied:\n\n\
             | entry B | load | commits/s | commit p50 ms | commit p99 ms | lag p50 ms | lag p99 ms | added to the lag's p50, ms | proxies left |\n\
             |---:|---|---:|---:|---:|---:|---:|---:|---:|\n",
        );
        for row in &self.0 {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {:.2} | {} |",
                row.entry_bytes,
                row.load_in_words,
                arrow(row.commits_per_s, 0),
                arrow(row.commit_p50_ms, 2),
                arrow(row.commit_p99_ms, 2),
                arrow(row.lag_p50_ms, 2),
                arrow(row.lag_p99_ms, 2),
                row.lag_p50_added_ms.median,
                row.fallbacks,
            );
        }
        text
    }
}

fn arrow(both: Both, digits: usize) -> String {
    let Both { vanilla, proxied } = both;
    format!("{:.digits$} → {:.digits$}", vanilla.median, proxied.median)
}

fn percent(share: Spread) -> String {
    format!("{:.2} %", share.median * 100.0)
}

fn row(samples: &[Sample], entry_bytes: usize, load: Load) -> Option<Row> {
    let of = |variant: Variant| {
        let samples = samples.iter();
        let wanted = samples.filter(move |sample| {
            sample.variant == variant && sample.load == load && sample.entry_bytes == entry_bytes
        });
        wanted.collect::<Vec<_>>()
    };
    let (vanilla, proxied) = (of(Variant::Vanilla), of(Variant::Proxied));
    let both = |value: &dyn Fn(&Sample) -> f64| {
        let spread = |samples: &[&Sample]| {
            let values: Vec<f64> = samples.iter().map(|sample| value(sample)).collect();
            Spread::of(&values)
        };
        Some(Both {
            vanilla: spread(&vanilla)?,
            proxied: spread(&proxied)?,
        })
    };
    let only_proxied = |value: &dyn Fn(&Sample) -> f64| both(value).map(|both| both.proxied);
    let compared = |compare: &dyn Fn(&Sample, &Sample) -> f64| {
        let pairs = vanilla.iter().zip(&proxied);
        let values: Vec<f64> = pairs
            .map(|(vanilla, proxied)| compare(vanilla, proxied))
            .collect();
        Spread::of(&values)
    };
    let share = |value: &dyn Fn(&Sample) -> f64| {
        compared(&|vanilla, proxied| value(proxied) / value(vanilla))
    };
    Some(Row {
        entry_bytes,
        load,
        load_in_words: load.words(entry_bytes),
        destination_bytes_per_commit: both(&|sample| sample.destination.bytes)?,
        destination_messages_per_commit: both(&|sample| sample.destination.messages)?,
        said_to_proxy_bytes_per_commit: only_proxied(&|sample| sample.said_to_proxy.bytes)?,
        said_by_proxy_bytes_per_commit: only_proxied(&|sample| sample.said_by_proxy.bytes)?,
        region_bytes_per_commit: both(&|sample| sample.region.bytes)?,
        proxied_share_of_vanilla: share(&|sample| sample.destination.bytes)?,
        proxied_share_of_vanilla_with_tcp_ip_headers: share(&|sample| {
            sample.destination.bytes_with_headers
        })?,
        region_share_of_vanilla: share(&|sample| sample.region.bytes)?,
        commits_per_s: both(&|sample| sample.commits_per_s)?,
        commit_p50_ms: both(&|sample| sample.commit_ms.p50)?,
        commit_p99_ms: both(&|sample| sample.commit_ms.p99)?,
        lag_p50_ms: both(&|sample| sample.lag_ms.p50)?,
        lag_p99_ms: both(&|sample| sample.lag_ms.p99)?,
        lag_p50_added_ms: compared(&|vanilla, proxied| proxied.lag_ms.p50 - vanilla.lag_ms.p50)?,
        fallbacks: proxied.iter().map(|sample| sample.fallbacks).sum(),
    })
}

// The lag that one more hop adds at a distant witness, and a round trip in its region for comparison. From samples of a ring of
// two regions. Pure.

/// The results for entries of one size. Only values of the same round are compared.
#[derive(Clone, Debug, Serialize)]
struct HopRow {
    entry_bytes: usize,
    load_in_words: String,
    lag_p50_vanilla_ms: Spread,
    lag_p50_proxied_ms: Spread,
    lag_p50_added_ms: Spread,
    lag_p99_added_ms: Spread,
    /// The median of an empty call and its answer, between two members of one region.
    call_inside_p50_ms: Spread,
    /// The median of a commit: an entry to a member of the same region, and its answer.
    commit_p50_ms: Spread,
}

/// All results.
pub(crate) struct HopReport(Vec<HopRow>);

impl HopReport {
    /// Creates the report. Samples of one variant and size must be in the order of the rounds.
    pub(crate) fn of(samples: &[Sample], sizes: &[usize]) -> Result<Self> {
        let rows = sizes.iter().map(|size| hop_row(samples, *size));
        let rows: Option<Vec<_>> = rows.collect();
        Ok(Self(rows.context("nothing was measured")?))
    }

    /// Adds the results to the figures.
    pub(crate) fn put_into(&self, figures: &mut Figures) -> Result<()> {
        figures.set("hop", &self.0)
    }

    /// Returns the table, for the terminal and for a document.
    pub(crate) fn table(&self) -> String {
        let mut text = String::from(
            "A distant witness's lag in a ring of two regions, ms; vanilla → proxied:\n\n\
             | entry B | load | lag p50 | **added to p50** | added to p99 | a call inside a region, p50 | a commit there, p50 |\n\
             |---:|---|---:|---:|---:|---:|---:|\n",
        );
        for row in &self.0 {
            let _ = writeln!(
                text,
                "| {} | {} | {:.2} → {:.2} | **{:.2}** | {:.2} | {:.2} | {:.2} |",
                row.entry_bytes,
                row.load_in_words,
                row.lag_p50_vanilla_ms.median,
                row.lag_p50_proxied_ms.median,
                row.lag_p50_added_ms.median,
                row.lag_p99_added_ms.median,
                row.call_inside_p50_ms.median,
                row.commit_p50_ms.median,
            );
        }
        text
    }
}

fn hop_row(samples: &[Sample], entry_bytes: usize) -> Option<HopRow> {
    let of = |variant: Variant| {
        let samples = samples.iter();
        let wanted = samples
            .filter(move |sample| sample.variant == variant && sample.entry_bytes == entry_bytes);
        wanted.collect::<Vec<_>>()
    };
    let (vanilla, proxied) = (of(Variant::Vanilla), of(Variant::Proxied));
    let spread = |samples: &[&Sample], value: &dyn Fn(&Sample) -> f64| {
        let values: Vec<f64> = samples.iter().map(|sample| value(sample)).collect();
        Spread::of(&values)
    };
    let added = |value: &dyn Fn(&Sample) -> f64| {
        let pairs = vanilla.iter().zip(&proxied);
        let values: Vec<f64> = pairs
            .map(|(vanilla, proxied)| value(proxied) - value(vanilla))
            .collect();
        Spread::of(&values)
    };
    Some(HopRow {
        entry_bytes,
        load_in_words: proxied.first()?.load.words(entry_bytes),
        lag_p50_vanilla_ms: spread(&vanilla, &|sample| sample.lag_ms.p50)?,
        lag_p50_proxied_ms: spread(&proxied, &|sample| sample.lag_ms.p50)?,
        lag_p50_added_ms: added(&|sample| sample.lag_ms.p50)?,
        lag_p99_added_ms: added(&|sample| sample.lag_ms.p99)?,
        call_inside_p50_ms: spread(&proxied, &|sample| sample.call_ms.p50)?,
        commit_p50_ms: spread(&proxied, &|sample| sample.commit_ms.p50)?,
    })
}
