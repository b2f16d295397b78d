//! `cargo lab compare failover`: measures how long commits are interrupted by the death of the leader and by a switchover. The ring has
//! nine processes, in three distant regions or in one region. The figures include Table 2 of the MyRaft paper.
//!
//! Three members have a database: a writer inside the member's process, or a mysqld with clients. The other members are witnesses that run
//! the released binary.

mod crash;
mod databases;
mod events;
mod group_replication;
mod options;
mod promotion;
mod scene;
mod summary;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use testkit::cluster::{Profile, embedded_member, primary_clients};
use testkit::distance::check_needs;
use testkit::stop_on_interrupt;

pub(crate) use crate::compare::failover::options::Options;
use crate::compare::failover::options::{Place, Programs};
use crate::compare::failover::scene::Scene;
use crate::compare::failover::summary::{Measured, Summary};
use crate::compare::{begin, finish, set_all};

const FIGURES: &str = "failover";
const FIGURES_WITH_MYSQL: &str = "failover-mysql";

/// Runs the comparison, prints the tables and writes the figures.
pub(super) fn run(options: &Options) -> Result<()> {
    ensure!(
        options.inside_ms >= 0.0 && options.across_ms >= options.inside_ms,
        "--across-ms must be at least --inside-ms"
    );
    check_needs()?;
    let stop = stop_on_interrupt()?;
    let (witness, mut figures) = begin(match options.mysql {
        true => FIGURES_WITH_MYSQL,
        false => FIGURES,
    })?;
    let database = match options.mysql {
        true => primary_clients(Profile::Dist)?,
        false => embedded_member(Profile::Dist)?,
    };
    let programs = Programs { witness, database };
    let mut measured = Vec::new();
    for &place in &options.places {
        for &heartbeat_ms in &options.timers {
            let scene = Scene::set(options, &programs, place, heartbeat_ms, stop.clone())?;
            let done = measure(options, place, heartbeat_ms, scene);
            let what = || format!("{place:?}, with a heartbeat of {heartbeat_ms} ms");
            measured.push(done.with_context(what)?);
        }
    }
    let peers = match options.mysql {
        true => group_replication::measure(options.group_kills, &stop)?,
        false => BTreeMap::new(),
    };
    let summary = Summary::of(&measured, &peers);
    println!("{}", summary.table());
    summary.put_into(&mut figures)?;
    let entries = json!({
        "inside_one_way_ms": options.inside_ms, "across_one_way_ms": options.across_ms, "members": options.members,
        "commits_per_second": options.commits_per_second, "loss_percent": options.loss_percent,
        "soak_minutes": options.soak_minutes,
    });
    set_all(&mut figures, &entries)?;
    finish(&figures)?;
    for one in &measured {
        one.verdict.ensure_nothing_is_lost()?;
    }
    Ok(())
}

fn measure(
    options: &Options,
    place: Place,
    heartbeat_ms: u64,
    mut scene: Scene,
) -> Result<Measured> {
    let (mut crashes, mut promotions) = (Vec::new(), Vec::new());
    for number in 0..options.crashes.max(options.promotions) {
        if number < options.crashes {
            for &death in &options.deaths {
                crashes.push((death, crash::measure(&mut scene, death)?));
            }
        }
        if number < options.promotions {
            promotions.push(promotion::measure(&mut scene, number)?);
        }
    }
    let soak = Duration::from_secs(60 * u64::from(options.soak_minutes));
    let elected_in_soak = match soak.is_zero() {
        true => None,
        false => Some(scene.soak(soak)?),
    };
    Ok(Measured {
        place,
        heartbeat_ms,
        elected_in_soak,
        crashes,
        promotions,
        verdict: scene.end()?,
    })
}
