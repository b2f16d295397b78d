//! Measures the speed of the applier's parts: the scheduler alone, the applier's own cost on one core, and the whole path from a log in
//! memory into the in-memory database. It also computes C5's adversarial workload with its primary in virtual time (see `virtual_time`).
//!
//! `cargo bench --bench applier` prints tables, writes `target/figures/applier.json`, and draws `docs/img/applier.svg`. With `-- --quick`
//! the bench is short and writes nothing.

mod in_memory;
mod one_core;
mod report;
mod virtual_time;

use std::collections::VecDeque;
use std::fs;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use applier::batch::BatchSeq;
use applier::keys::{Access, KeyAccess, KeyHash};
use applier::scheduler::{Policy, Scheduler};
use testkit::figures::Figures;
use testkit::statistics::Spread;

use crate::in_memory::{Log, WORKERS};
use crate::one_core::one_core;
use crate::report::{Adversarial, InMemory, Report, SchedulerSpeed};
use crate::virtual_time::{COMMITS, Costs, INSERTS};

/// The extent of the measurements.
struct Plan {
    rounds: usize,
    /// Row writes in a round of the scheduler alone.
    scheduler_rows: usize,
    /// Transactions in a run on one core.
    one_core: usize,
    /// Transactions in a run into the in-memory database.
    in_memory: usize,
    /// Transactions in the adversarial workload.
    adversarial: usize,
}

const WHOLE: Plan = Plan {
    rounds: 5,
    scheduler_rows: 2_000_000,
    one_core: 200_000,
    in_memory: 50_000,
    adversarial: 4_000,
};
const QUICK: Plan = Plan {
    rounds: 1,
    scheduler_rows: 20_000,
    one_core: 1_000,
    in_memory: 1_000,
    adversarial: 1_000,
};

fn scheduler_alone(plan: &Plan) -> Result<Vec<SchedulerSpeed>> {
    let mut speeds = Vec::new();
    for policy in Policy::ALL {
        for rows in [1, 4, 16, 64] {
            let transactions = plan.scheduler_rows / rows;
            let samples: Vec<f64> = (0..plan.rounds)
                .map(|_| transactions_per_second(policy, rows, transactions))
                .collect();
            speeds.push(SchedulerSpeed {
                policy: policy.name(),
                rows,
                tps: Spread::of(&samples).context("nothing was measured")?,
            });
        }
    }
    Ok(speeds)
}

async fn into_memory(plan: &Plan) -> Result<Vec<InMemory>> {
    let log = Log::make(plan.in_memory)?;
    let setups: Vec<(Policy, usize)> = Policy::ALL
        .iter()
        .flat_map(|policy| WORKERS.map(|workers| (*policy, workers)))
        .collect();
    let mut samples = vec![Vec::new(); setups.len()];
    // Rounds are interleaved.
    for _ in 0..plan.rounds {
        for ((policy, workers), samples) in setups.iter().zip(&mut samples) {
            samples.push(log.rows_per_second(*policy, *workers).await?);
        }
    }
    let all = setups.iter().zip(&samples);
    all.map(|((policy, workers), samples)| {
        Ok(InMemory {
            policy: policy.name(),
            workers: *workers,
            rows_per_second: Spread::of(samples).context("nothing was measured")?,
        })
    })
    .collect()
}

fn adversarial(plan: &Plan) -> Result<Vec<Adversarial>> {
    let mut all = Vec::new();
    for commit_in_writes in COMMITS {
        let costs = Costs {
            commit: commit_in_writes,
        };
        for inserts in INSERTS {
            let primary = virtual_time::primary(inserts, costs, plan.adversarial)?;
            for policy in Policy::ALL {
                let backup = virtual_time::backup(policy, inserts, costs, plan.adversarial)?;
                all.push(Adversarial {
                    policy: policy.name(),
                    commit_in_writes,
                    inserts,
                    ratio_to_primary: backup / primary,
                });
            }
        }
    }
    Ok(all)
}

/// Checks results that do not depend on the machine.
fn check(report: &Report) -> Result<()> {
    for commit in COMMITS {
        for (inserts, ratio) in report.line("rows", commit) {
            ensure!(
                ratio > 1.0 - 1e-9,
                "rows is at {ratio} of the primary with {inserts} inserts and c = {commit} w"
            );
        }
    }
    let transactions = report.line("transactions", COMMITS[0]);
    let falls = transactions.is_sorted_by(|one, other| one.1 >= other.1);
    let last = transactions.last().map_or(1.0, |(_, ratio)| *ratio);
    ensure!(
        falls && (0.35..0.45).contains(&last),
        "transactions does not fall to 0.4: {transactions:?}"
    );
    Ok(())
}

fn main() -> Result<()> {
    // `cargo test` runs benches with `--test`, to check that they work. The figures are then not usable.
    let short = ["--test", "--quick"];
    let quick = std::env::args().any(|argument| short.contains(&argument.as_str()));
    let plan = if quick { QUICK } else { WHOLE };
    let mut figures = Figures::new("applier", "cargo bench --bench applier")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let report = Report {
        scheduler: scheduler_alone(&plan)?,
        one_core: one_core(plan.rounds, plan.one_core)?,
        in_memory: runtime.block_on(into_memory(&plan))?,
        adversarial: adversarial(&plan)?,
    };
    print!("{}", report.tables());
    check(&report)?;
    if quick {
        return Ok(());
    }
    report.put_into(&mut figures)?;
    println!("figures: {}", figures.write()?.display());
    let folder = testkit::checkout().join("docs/img");
    fs::create_dir_all(&folder)?;
    let picture = folder.join("applier.svg");
    fs::write(&picture, report::draw(&report)?)?;
    println!("picture: {}", picture.display());
    Ok(())
}

// Measures how many transactions per second the scheduler adds, releases and removes, on one core and without anything else. C5-MyRocks
// processed 95,683 (section 6.2 of the paper, inserts of unique rows).

/// The number of transactions that are open at the same time.
const OPEN: usize = 1_000;

/// Returns transactions per second. Each transaction inserts `rows` unique rows, which use the table's key shared and their own keys
/// exclusively.
pub(crate) fn transactions_per_second(policy: Policy, rows: usize, transactions: usize) -> f64 {
    let logs: Vec<Vec<[KeyAccess; 2]>> = (0..transactions)
        .map(|number| (0..rows).map(|row| keys(number * rows + row)).collect())
        .collect();
    let mut scheduler = Scheduler::new(policy, BatchSeq(1));
    let mut open = VecDeque::with_capacity(OPEN);
    let begin = Instant::now();
    for rows in &logs {
        open.push_back(scheduler.admit(rows.iter().map(<[KeyAccess; 2]>::as_slice)));
        if open.len() == OPEN {
            finish(&mut scheduler, open.pop_front());
        }
    }
    while !open.is_empty() {
        finish(&mut scheduler, open.pop_front());
    }
    transactions as f64 / begin.elapsed().as_secs_f64()
}

fn finish(scheduler: &mut Scheduler, seq: Option<BatchSeq>) {
    let Some(seq) = seq else { return };
    black_box(scheduler.safe_rows(seq));
    black_box(scheduler.committed(seq));
}

fn keys(row: usize) -> [KeyAccess; 2] {
    // The values are evenly distributed, as hashes are.
    let hash = (row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [
        KeyAccess {
            key: KeyHash(7),
            access: Access::Shared,
        },
        KeyAccess {
            key: KeyHash(hash),
            access: Access::Exclusive,
        },
    ]
}
