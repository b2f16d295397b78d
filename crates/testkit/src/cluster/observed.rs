//! Reads the state that the members of a cluster report and the contents of their mysqlds, and waits for expected states.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::cluster::{Cluster, HttpAnswer, LogFiles, http_get, http_get_within};
use crate::mysqld::TableChecksums;
use crate::wait::{self, Look};

const VIEW_LIMIT: Duration = Duration::from_millis(1500);
/// The lag in entries that a member across the longest distance may have under load.
const CAUGHT_UP_ENTRIES: u64 = 100;

/// How closely all members must follow in a healthy ring.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    /// If a peer's last answer is older than this, the peer counts as absent.
    pub answered: Duration,
    /// The largest allowed lag of a follower's mysqld, in seconds.
    pub lag_seconds: u64,
}

/// The fields used of a member's `/status`.
#[derive(Debug, Deserialize)]
struct View {
    serving: bool,
    voter_sets: Vec<BTreeSet<u64>>,
    peers: Vec<Peer>,
    log_end: Value,
    committed: Value,
}

#[derive(Debug, Deserialize)]
struct Peer {
    id: Value,
    behind_entries: Option<u64>,
    answered_seconds: Option<f64>,
}

impl Cluster {
    /// Sends a GET request to a member.
    ///
    /// # Errors
    /// If the member does not answer.
    pub fn get(&self, index: usize, path: &str) -> Result<HttpAnswer> {
        http_get(self.http(index), path)
    }

    fn says_yes(&self, index: usize, question: &str) -> bool {
        self.get(index, question)
            .is_ok_and(|answer| answer.status == 200)
    }

    /// Returns a member's `/status`.
    ///
    /// # Errors
    /// If the member does not answer in time.
    pub fn status(&self, index: usize) -> Result<Value> {
        http_get_within(self.http(index), "/status", VIEW_LIMIT)?.json()
    }

    /// Returns a member's current term.
    ///
    /// # Errors
    /// If the member does not answer.
    pub fn term(&self, index: usize) -> Result<u64> {
        let status = self.status(index)?;
        let term = status["term"].as_u64();
        term.with_context(|| format!("a status without a term: {status}"))
    }

    fn views(&self) -> Result<Vec<View>> {
        let view = |index| {
            let status = self.status(index);
            let status = status.with_context(|| format!("{} does not answer", self.name(index)))?;
            Ok(serde_json::from_value(status)?)
        };
        (0..self.size()).map(view).collect()
    }

    /// Returns the primary, if the ring has recovered: a database member serves, its region is the quorum, and every member is within
    /// `level`.
    ///
    /// # Errors
    /// If a condition is not met; with the first such condition.
    pub fn standing(&self, level: Level) -> Result<usize> {
        let views = self.views()?;
        let serving: Vec<usize> = (0..views.len())
            .filter(|index| views[*index].serving)
            .collect();
        let [leader] = serving[..] else {
            bail!("{} members serve", serving.len());
        };
        let (name, view) = (self.name(leader), &views[leader]);
        let is_database = self.databases().contains(&leader);
        ensure!(is_database, "{name} leads, a witness");
        let region = self.neighbours(leader).into_iter();
        let region: BTreeSet<u64> = region.map(|index| self.id(index)).collect();
        let sets = &view.voter_sets;
        ensure!(*sets == [region], "{name} leads and the quorum is {sets:?}");
        let peers = &view.peers;
        ensure!(peers.len() + 1 == self.size(), "{name} has other peers");
        for peer in peers {
            let answered = peer.answered_seconds;
            let fresh = answered.is_some_and(|age| age < level.answered.as_secs_f64());
            let near = peer
                .behind_entries
                .is_some_and(|lag| lag <= CAUGHT_UP_ENTRIES);
            ensure!(fresh && near, "member {} is not level: {peer:?}", peer.id);
        }
        for index in self.with_a_server() {
            let question = match index == leader {
                true => "/primary".to_owned(),
                false => format!("/replica?lag={}s", level.lag_seconds),
            };
            let answer = http_get_within(self.http(index), &question, VIEW_LIMIT)?;
            let (name, body) = (self.name(index), &answer.body);
            ensure!(answer.status == 200, "{name} {question}: {body}");
        }
        Ok(leader)
    }

    /// True if all logs end with the same entry, and all members have it committed.
    #[must_use]
    pub fn logs_are_level(&self) -> bool {
        self.views().is_ok_and(|views| {
            let end = &views[0].log_end;
            let level = |view: &View| view.log_end == *end && view.committed == *end;
            !end.is_null() && views.iter().all(level)
        })
    }

    /// Returns the status of every member as text for messages.
    #[must_use]
    pub fn words(&self) -> String {
        let say = |index: usize| {
            let words = match self.status(index) {
                Ok(view) => {
                    let keys = [
                        "role",
                        "serving",
                        "term",
                        "leader",
                        "log_end",
                        "committed",
                        "voter_sets",
                        "mysql",
                    ];
                    keys.map(|key| format!("{key} {}", view[key])).join(" ")
                }
                Err(error) => format!("{error:#}"),
            };
            format!("  {} ({}): {words}\n", self.name(index), self.id(index))
        };
        (0..self.size()).map(say).collect()
    }

    /// Polls until a check succeeds.
    ///
    /// # Errors
    /// If no check succeeds within the limit; with the status of every member.
    pub fn eventually<L: Look>(
        &self,
        what: &str,
        limit: Duration,
        look: impl FnMut() -> L,
    ) -> Result<L::Found> {
        wait::eventually(what, limit, look)
            .with_context(|| format!("{}{}", self.words(), self.last_words()))
    }

    /// Waits until the primary accepts writes, as a member reports. If a member ends before that, the error is immediate.
    ///
    /// # Errors
    /// If no primary accepts writes within the limit; the message contains the members' last log lines.
    pub fn wait_until_primary(&mut self, limit: Duration) -> Result<()> {
        self.wait_until("the primary takes writes", limit, |cluster| {
            Ok(cluster.primary_now().is_some())
        })
    }

    /// Returns the member that reports that it is the primary.
    #[must_use]
    pub fn primary_now(&self) -> Option<usize> {
        let mut databases = self.databases().into_iter();
        databases.find(|member| self.says_yes(*member, "/primary"))
    }

    /// Waits until a member reports that it is the primary, and returns it.
    ///
    /// # Errors
    /// If no member is the primary within the limit.
    pub fn primary(&self, limit: Duration) -> Result<usize> {
        self.eventually("a member is the primary", limit, || self.primary_now())
    }

    /// Waits until a member's mysqld follows with a lag of at most 200 ms.
    ///
    /// # Errors
    /// If it does not within the limit.
    pub fn follows(&self, index: usize, limit: Duration) -> Result<()> {
        self.eventually(&format!("{} follows", self.name(index)), limit, || {
            self.says_yes(index, "/replica?lag=200ms")
        })
    }

    /// Makes the member with this name the primary. A refused request is repeated: after a start the member inspects its mysqld again,
    /// and after an election there may be no leader yet. A request that timed out may have been executed.
    ///
    /// # Errors
    /// If the limit passes; with the last refusal.
    pub fn promote(&self, name: &str, limit: Duration) -> Result<()> {
        self.eventually(&format!("{name} is promoted"), limit, || {
            // Uses the configuration of a witness, because a witness is never promoted.
            let done = self.cli_of(1, &["switchover", name, "--yes"])?;
            let told = String::from_utf8_lossy(&done.stderr);
            let led = done.status.success() || told.contains("leads already");
            ensure!(led, "{told}");
            Ok(())
        })
    }

    /// Makes the first database member the primary. On a slow machine an election during bootstrap may have chosen another member.
    ///
    /// # Errors
    /// If a step exceeds its limit.
    pub fn promote_the_first(&self, limit: Duration) -> Result<()> {
        if self.primary(limit)? != 0 {
            self.follows(0, limit)?;
            self.promote(self.name(0), limit)?;
            self.eventually("the first is the primary", limit, || {
                self.says_yes(0, "/primary")
            })?;
        }
        Ok(())
    }

    /// As [`Self::promote_the_first`], and waits until the other database members follow.
    ///
    /// # Errors
    /// If a step exceeds its limit.
    pub fn begins_at_the_first(&self, limit: Duration) -> Result<()> {
        self.promote_the_first(limit)?;
        let mut others = self.databases().into_iter().skip(1);
        others.try_for_each(|member| self.follows(member, limit))
    }

    /// Checks that all mysqlds have executed the same transactions.
    ///
    /// # Errors
    /// If the sets differ; with the GTIDs that each mysqld has executed.
    pub fn same_executed(&self) -> Result<()> {
        let servers = self.with_a_server().into_iter();
        let executed = servers.map(|member| self.client(member).gtid_executed());
        let sets: Vec<String> = executed.collect::<Result<_>>()?;
        ensure!(sets.iter().all(|set| *set == sets[0]), "{sets:?}");
        Ok(())
    }

    /// Compares the tables of all mysqlds.
    ///
    /// # Errors
    /// If tables differ from those of the first mysqld; with the member.
    pub fn same_tables(&self, schema: &str) -> Result<TableChecksums> {
        let first = self.client(0).table_checksums(schema)?;
        for member in self.with_a_server() {
            let other = self.client(member).table_checksums(schema)?;
            let name = self.name(member);
            ensure!(
                first == other,
                "{name}'s tables differ: {first:?}, {other:?}"
            );
        }
        Ok(first)
    }

    /// Waits until all mysqlds have executed the same transactions, then compares their tables.
    ///
    /// # Errors
    /// If there are differences after the limit; with the differences.
    pub fn equal(&self, schema: &str, limit: Duration) -> Result<TableChecksums> {
        self.eventually("the mysqlds have executed the same", limit, || {
            self.same_executed()
        })?;
        self.same_tables(schema)
    }

    /// Checks that the log files of all members are equal byte by byte.
    ///
    /// # Errors
    /// If there is a difference; with the first one.
    pub fn same_logs(&self) -> Result<LogFiles> {
        let first = self.log_files(0)?;
        for index in 1..self.size() {
            if let Some(found) = first.first_difference(&self.log_files(index)?) {
                let (one, other) = (self.name(0), self.name(index));
                bail!("{one}'s and {other}'s differ: {found}");
            }
        }
        Ok(first)
    }

    /// Waits until the log files of all members are equal byte by byte, and no longer grow.
    ///
    /// # Errors
    /// If the limit passes; with the first difference.
    pub fn wait_until_equal(&self, limit: Duration) -> Result<LogFiles> {
        let mut before: Option<LogFiles> = None;
        self.eventually("all members have the same files", limit, || {
            let logs = self.same_logs()?;
            if before.as_ref() == Some(&logs) {
                return Ok(logs);
            }
            before = Some(logs);
            bail!("the log still grows")
        })
    }
}
