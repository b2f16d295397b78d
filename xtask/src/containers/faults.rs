//! Injects the faults into the containers, in order, and measures how long each interrupts the clients.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::wait::eventually;

use crate::containers::stack::{MEMBERS, Member, Stack, databases};
use crate::containers::writer::Writer;
use crate::mysql;

const TABLE: &str = "shop.orders";
const CLIENT: (&str, &str) = ("shop", "shop-password");
/// Time limit for a client's first acknowledgement after a fault.
const RECOVERY: Duration = Duration::from_secs(60);
/// Time limit for a member to have its role again.
const RETURN: Duration = Duration::from_secs(120);
/// Time limit for an alert. Prometheus evaluates the rule at intervals, and the rule itself waits.
const ALERT: Duration = Duration::from_secs(180);
/// Duration of the writes between two faults.
const CALM: Duration = Duration::from_secs(2);

/// How long the primary's container is paused.
const PAUSE: Duration = Duration::from_secs(60);
/// How long the primary is disconnected.
const CUT: Duration = Duration::from_secs(30);
/// How long the quorum is lost. No row may be acknowledged in that time.
const NO_QUORUM_WATCHED: Duration = Duration::from_secs(10);

/// A ring with clients that write.
pub(super) struct Faults<'e> {
    stack: Stack<'e>,
    writer: Writer,
    short: bool,
}

impl<'e> Faults<'e> {
    /// Starts clients that write into the table that the page creates.
    pub(super) fn begin(stack: Stack<'e>, short: bool) -> Result<Self> {
        let tree = mysql::provide_unpacked()?;
        let writer = Writer::start(&tree, stack.writes, CLIENT, TABLE);
        writer
            .wrote_again(Instant::now(), RECOVERY)
            .with_context(|| stack.last_words())?;
        Ok(Self {
            stack,
            writer,
            short,
        })
    }

    /// Injects all faults, or in the short form only some, and checks that no acknowledged row is lost.
    pub(super) fn all(self) -> Result<()> {
        self.killed()?;
        if !self.short {
            self.paused()?;
            self.cut_off()?;
        }
        self.region_lost_and_writes_stop()?;
        if !self.short {
            self.region_lost_and_writes_continue()?;
        }
        self.stack.renew_certificates()?;
        self.replaced()?;
        self.nothing_is_lost()
    }

    fn killed(&self) -> Result<()> {
        let primary = self.calm()?;
        let what = "the primary's container was killed";
        self.interrupted(what, |stack| stack.order("kill", &[primary]))?;
        self.stack.order("start", &[primary])?;
        self.stack.is_back(primary, RETURN)
    }

    fn paused(&self) -> Result<()> {
        let primary = self.calm()?;
        let what = "the primary's container was paused";
        let began = self.interrupted(what, |stack| stack.order("pause", &[primary]))?;
        thread::sleep(PAUSE.saturating_sub(began.elapsed()));
        self.interrupted("it continued", |stack| stack.order("unpause", &[primary]))?;
        self.stack.is_back(primary, RETURN)
    }

    fn cut_off(&self) -> Result<()> {
        let primary = self.calm()?;
        let what = "the primary was cut off its network";
        let began = self.interrupted(what, |stack| stack.cut_off(primary))?;
        thread::sleep(CUT.saturating_sub(began.elapsed()));
        self.interrupted("it was connected again", |stack| stack.connect(primary))?;
        self.stack.is_back(primary, RETURN)
    }

    /// Kills the region of the primary under the default policy, for which a majority of the leader's region decides. Writes must stop.
    fn region_lost_and_writes_stop(&self) -> Result<()> {
        let region = of_region(self.calm()?);
        self.stack.order("kill", &region)?;
        let at = Instant::now();
        thread::sleep(NO_QUORUM_WATCHED);
        ensure!(
            !self.writer.has_written_since(at),
            "clients were acknowledged rows while the region of the primary was lost"
        );
        self.reports_why(&region)?;
        let back = Instant::now();
        self.stack.order("start", &region)?;
        let after = self.writer.wrote_again(back, RECOVERY)?;
        println!(
            "containers: the region came back: clients wrote again after {:.2} s",
            after.as_secs_f64()
        );
        self.all_are_back(&region)
    }

    /// Checks that `witness status` and an alert report the lost quorum and what to do.
    fn reports_why(&self, lost: &[Member]) -> Result<()> {
        let left = MEMBERS.into_iter().find(|member| !lost.contains(member));
        let left = left.context("all members are lost")?;
        let said = self.stack.try_witness(left, &["status"])?.stdout;
        let said = String::from_utf8_lossy(&said);
        println!("containers: `witness status` without the region says:\n{said}");
        for wanted in ["Commits wait", "witness quorum fix"] {
            ensure!(
                said.contains(wanted),
                "`witness status` does not say `{wanted}`"
            );
        }
        let began = Instant::now();
        let fires = eventually("an alert says that there is no quorum", ALERT, || {
            let firing = self.stack.alerts("firing").unwrap_or_default();
            firing.contains(&NO_QUORUM.to_owned()).then_some(firing)
        })
        .with_context(|| format!("pending: {:?}", self.stack.alerts("pending")))?;
        println!(
            "containers: alerts after {:.1} s more: {}",
            began.elapsed().as_secs_f64(),
            fires.join(", ")
        );
        Ok(())
    }

    fn region_lost_and_writes_continue(&self) -> Result<()> {
        self.calm()?;
        self.stack
            .order_ring(&["quorum", "set", "--policy", "majority", "--yes"])?;
        let primary = self.calm()?;
        let region = of_region(primary);
        let what = "the primary's region was lost under the policy majority";
        self.interrupted(what, |stack| stack.order("kill", &region))?;
        self.stack.order("start", &region)?;
        self.all_are_back(&region)
    }

    /// Replaces every container by one of the next version: first witnesses, then followers, and last the primary. In the short form,
    /// replaces only the primary.
    fn replaced(&self) -> Result<()> {
        let primary = self.calm()?;
        let begun = Instant::now();
        let mut order = match self.short {
            true => vec![primary],
            false => MEMBERS.to_vec(),
        };
        order.sort_by_key(|member| (member.has_mysqld(), *member == primary));
        for member in order.iter().copied() {
            if member == primary {
                let next = databases().find(|other| *other != primary);
                let next = next.context("there is no other mysqld")?.name;
                self.stack.order_ring(&["switchover", next, "--yes"])?;
            }
            self.stack.replace(member)?;
            self.stack.is_back(member, RETURN)?;
        }
        println!(
            "containers: replaced {} of {} in {:.1} s; clients waited {:.2} s at most",
            order.len(),
            MEMBERS.len(),
            begun.elapsed().as_secs_f64(),
            self.writer.longest_gap(begun).as_secs_f64()
        );
        Ok(())
    }

    /// Checks that every acknowledged row is in every mysqld.
    fn nothing_is_lost(self) -> Result<()> {
        self.calm()?;
        let acknowledged = self.writer.stop();
        ensure!(!acknowledged.is_empty(), "nothing was written");
        for member in databases() {
            let what = format!("{} has every acknowledged row", member.name);
            eventually(&what, RETURN, || {
                let held = self.stack.sql(member, &format!("SELECT id FROM {TABLE}"))?;
                let held: BTreeSet<u64> =
                    held.lines().filter_map(|line| line.parse().ok()).collect();
                let lost = acknowledged.difference(&held).count();
                ensure!(lost == 0, "{lost} acknowledged rows are not there");
                anyhow::Ok(())
            })?;
        }
        println!(
            "containers: {} rows were acknowledged, and every mysqld has them",
            acknowledged.len()
        );
        Ok(())
    }

    /// Lets the clients write for `CALM`. Returns the primary.
    fn calm(&self) -> Result<Member> {
        thread::sleep(CALM);
        self.writer.wrote_again(Instant::now(), RECOVERY)?;
        self.stack.primary(RECOVERY)
    }

    /// Injects a fault, and waits until clients write again. Prints the longest time without an acknowledgement since the fault began.
    fn interrupted(
        &self,
        what: &str,
        order: impl FnOnce(&Stack<'e>) -> Result<()>,
    ) -> Result<Instant> {
        let began = Instant::now();
        order(&self.stack)?;
        self.writer
            .wrote_again(Instant::now(), RECOVERY)
            .with_context(|| format!("{}\n{what}", self.stack.last_words()))?;
        println!(
            "containers: {what}: clients waited {:.2} s",
            self.writer.longest_gap(began).as_secs_f64()
        );
        Ok(began)
    }

    fn all_are_back(&self, members: &[Member]) -> Result<()> {
        members
            .iter()
            .try_for_each(|member| self.stack.is_back(*member, RETURN))
    }
}

/// The alert for a lost quorum in `monitoring/alerts.yaml`.
const NO_QUORUM: &str = "WitnessNoQuorum";

fn of_region(member: Member) -> Vec<Member> {
    let same = MEMBERS.into_iter();
    same.filter(|other| other.region == member.region).collect()
}
