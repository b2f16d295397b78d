//! What one more hop costs the lag of a distant witness, beside what a round trip costs there. From samples of a ring of two
//! regions. Pure.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::Serialize;
use testkit::figures::Figures;
use testkit::statistics::Spread;

use super::sample::Sample;
use super::variant::Variant;

/// Entries of one size. What is set against each other is of the same round.
#[derive(Clone, Debug, Serialize)]
struct Row {
    entry_bytes: usize,
    load_in_words: String,
    lag_p50_vanilla_ms: Spread,
    lag_p50_proxied_ms: Spread,
    lag_p50_added_ms: Spread,
    lag_p99_added_ms: Spread,
    /// A call that says nothing, and its answer, between two members of one region: its middle.
    call_inside_p50_ms: Spread,
    /// A commit: such an entry's way to a member of the same region, and its answer's way back.
    commit_p50_ms: Spread,
}

/// All of it.
pub(crate) struct HopReport(Vec<Row>);

impl HopReport {
    /// Samples of one variant and size stand in the order of the rounds.
    pub(crate) fn of(samples: &[Sample], sizes: &[usize]) -> Result<Self> {
        let rows = sizes.iter().map(|size| row(samples, *size));
        let rows: Option<Vec<_>> = rows.collect();
        Ok(Self(rows.context("nothing was measured")?))
    }

    /// Sets the entries of the figures.
    pub(crate) fn put_into(&self, figures: &mut Figures) -> Result<()> {
        figures.set("hop", &self.0)
    }

    /// For the terminal, and for a document.
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

fn row(samples: &[Sample], entry_bytes: usize) -> Option<Row> {
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
    Some(Row {
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
