//! Measures one promotion under load: `witness switchover` transfers the leadership to another database member.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::compare::failover::crash::after_the_transfer;
use crate::compare::failover::events::{Moment, What, longest_gap_ms};
use crate::compare::failover::scene::Scene;

/// The search for the longest gap starts this long before the promotion, so that it includes the last commit before the gap.
const BEFORE_MS: u64 = 100;

/// The times of one promotion, in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PromotionTimes {
    /// The longest time without an acknowledged commit, which clients notice.
    pub(super) stall_ms: f64,
    /// Time from the start of the command to the first commit of the new leader.
    pub(super) total_ms: f64,
    /// The phases reported by the command, and the later phases from the members' logs.
    pub(super) phases: BTreeMap<String, f64>,
}

/// The part of the output of `witness switchover --output json` that is read.
#[derive(Deserialize)]
struct Document {
    phases: Vec<PhaseTime>,
}

#[derive(Deserialize)]
struct PhaseTime {
    phase: String,
    seconds: f64,
}

/// How a promotion ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Promotion {
    /// The target leads.
    Done(PromotionTimes),
    /// The command was refused, or the old leader stayed. Commits continued. The text is the command's error.
    Refused(String),
}

/// Waits until the ring has recovered, and promotes a database member. `number` selects the member, so that each one has its turn.
pub(super) fn measure(scene: &mut Scene, number: u32) -> Result<Promotion> {
    let leader = scene.settled()?;
    let target = scene.database_but(leader, number);
    let name = scene.name(target).to_owned();
    scene.say(&format!("{name} is promoted"));
    let began = Moment::now();
    let arguments = ["switchover", &name, "--yes", "--output", "json"];
    let told = scene.witness(&arguments, leader)?;
    if !told.status.success() {
        let why = String::from_utf8_lossy(&told.stderr).trim().to_owned();
        scene.say(&format!("{name} was not promoted: {why}"));
        return Ok(Promotion::Refused(why));
    }
    let told = told.into_text("witness switchover")?;
    let document: Document = serde_json::from_str(&told)
        .with_context(|| format!("witness switchover printed {told}"))?;
    let first = scene.first_commit(began, leader)?;
    let acknowledged = scene.acknowledged_around(began.minus_ms(BEFORE_MS))?;
    let phases = document.phases.into_iter();
    let mut phases: BTreeMap<String, f64> =
        phases.map(|one| (one.phase, one.seconds * 1e3)).collect();
    let events = scene.events(began);
    let successor = events
        .iter()
        .find(|event| event.what == What::Leads && event.by == first.by);
    if let Some(successor) = successor {
        phases.extend(after_the_transfer(successor.at, &events, first));
    }
    Ok(Promotion::Done(PromotionTimes {
        stall_ms: longest_gap_ms(&acknowledged, began).context("hardly any commits")?,
        total_ms: first.at.ms_since(began),
        phases,
    }))
}
