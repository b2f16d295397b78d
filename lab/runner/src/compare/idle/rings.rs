//! The concurrent rings: starts them, finds their leaders, and checks that they still accept a write.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::cluster::{Cluster, ClusterOptions, MemberDatabase, MemberOptions};

use crate::compare::idle::footprint::Footprint;

/// Time limit for a ring to elect a leader and to commit, while hundreds of other rings do the same.
const LIMIT: Duration = Duration::from_secs(180);

/// All concurrent rings.
pub(super) struct Rings(Vec<Cluster>);

/// The leader of a ring, by its index, and its term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leader {
    pub(super) member: usize,
    pub(super) term: u64,
}

impl Rings {
    /// Starts the rings one by one, and waits until each has a leader that serves.
    pub(super) fn start(witness: &Path, rings: usize, members: usize) -> Result<Self> {
        let mut started = Self(Vec::with_capacity(rings));
        for ring in 1..=rings {
            let of_ring = (1..=members).map(|member| {
                MemberOptions::new(format!("witness-{member}"), "here", MemberDatabase::Nothing)
            });
            let options =
                ClusterOptions::of(of_ring.collect()).with("log", "disk_reserve_bytes = 0");
            let mut cluster = Cluster::prepare(witness, options)?;
            cluster.bootstrap()?;
            started.0.push(cluster);
            if ring % 10 == 0 || ring == rings {
                eprintln!("compare: {ring} of {rings} rings started");
            }
        }
        started.leaders()?;
        Ok(started)
    }

    /// Waits until each ring has a leader that serves.
    pub(super) fn leaders(&self) -> Result<Vec<Leader>> {
        let leader = |ring: &Cluster| {
            ring.eventually("a member leads and serves", LIMIT, || {
                (0..ring.size()).find_map(|member| leads(ring, member))
            })
        };
        self.0.iter().map(leader).collect()
    }

    /// Returns an error if the leader or the term of a ring is not the one in `leaders`.
    pub(super) fn ensure_led_by(&self, leaders: &[Leader]) -> Result<()> {
        for (number, (ring, leader)) in self.0.iter().zip(leaders).enumerate() {
            let now = leads(ring, leader.member);
            ensure!(
                now == Some(*leader),
                "ring {number} was led by {leader:?} and is now: {now:?}\n{}",
                ring.words()
            );
        }
        Ok(())
    }

    /// Makes each ring commit an entry, and waits until all its members have the entry.
    pub(super) fn write(&self, when: &str) -> Result<()> {
        for (number, ring) in self.0.iter().enumerate() {
            let failed = || format!("ring {number} took no write {when}");
            // Immediately after an election, the members may still refuse a command.
            let flushed = ring.eventually("an entry commits", LIMIT, || {
                let member = (0..ring.size()).find(|member| ring.process_id(*member).is_some());
                let done = ring.cli_of(member.unwrap_or(0), &["log", "flush"])?;
                ensure!(
                    done.status.success(),
                    "{}",
                    String::from_utf8_lossy(&done.stderr)
                );
                Ok(())
            });
            flushed.with_context(failed)?;
            let running = (0..ring.size()).filter(|member| ring.process_id(*member).is_some());
            let running: Vec<usize> = running.collect();
            let level = ring.eventually("all have it", LIMIT, || is_level(ring, &running));
            level.with_context(failed)?;
        }
        Ok(())
    }

    /// Returns the resource use of each process, by ring and member.
    pub(super) fn footprints(&self) -> Result<Vec<Vec<Footprint>>> {
        let of_member = |ring: &Cluster, member| {
            let process = ring.process_id(member).context("a member has ended")?;
            Footprint::of(process)
        };
        let of_ring = |ring: &Cluster| {
            (0..ring.size())
                .map(|member| of_member(ring, member))
                .collect()
        };
        self.0.iter().map(of_ring).collect()
    }

    /// Kills all leaders, and waits until each ring has another leader. Returns the time until the last election. Then each ring must
    /// commit an entry.
    pub(super) fn crash_leaders(&mut self, leaders: &[Leader]) -> Result<Duration> {
        for (ring, leader) in self.0.iter_mut().zip(leaders) {
            ring.kill(leader.member)?;
        }
        let killed = Instant::now();
        self.leaders()?;
        let elected = killed.elapsed();
        self.write("after the crash of its leader")?;
        Ok(elected)
    }
}

/// Returns the member as a leader if it reports that it serves.
fn leads(ring: &Cluster, member: usize) -> Option<Leader> {
    ring.process_id(member)?;
    let status = ring.status(member).ok()?;
    let term = status["term"].as_u64()?;
    (status["serving"] == true).then_some(Leader { member, term })
}

/// Returns whether the logs of all members end at the same entry, and that entry is committed on each.
fn is_level(ring: &Cluster, members: &[usize]) -> Result<bool> {
    let mut end: Option<Value> = None;
    for member in members {
        let status = ring.status(*member)?;
        let own = status["log_end"].clone();
        let level = own == status["committed"] && end.as_ref().is_none_or(|end| *end == own);
        if own.is_null() || !level {
            return Ok(false);
        }
        end = Some(own);
    }
    Ok(true)
}
