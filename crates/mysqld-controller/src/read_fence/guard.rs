//! The guard: a separate process for each member, which blocks readers of its mysqld if the member hangs, or has ended and is not
//! restarted. The member sends a heartbeat several times a second; [`Silence`] describes when the guard acts.
//!
//! A restarted member has a new guard. The older guard stays until the new one has received a heartbeat, and is then superseded: a file in
//! the member's data directory has the process id of the active guard.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mysql_link::{ConnectOptions, LinkError};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{error, warn};

use mysqld_server::STATEMENT_LIMIT;
use mysqld_server::offline_mode::{SetOffline, raise_in_start_before};
use mysqld_server::supervisor::SupervisorOptions;

/// The pause after a failed attempt.
const RETRY: Duration = Duration::from_secs(1);
/// The file in the member's data directory with the process id of the active guard.
const TURN: &str = "guard.pid";

/// Options of a guard.
#[derive(Debug)]
pub struct GuardOptions {
    /// Data directory of the guarded member.
    pub member_dir: PathBuf,
    /// The member's account. It counts as the owner of the guard's settings, so the member can revert them.
    pub connect: ConnectOptions,
    /// How long a hanging member may be silent: the grace period plus the lease, in which it may still lead.
    pub limit: Duration,
    /// How long an ended member may be away: the grace period only. It no longer leads, so no lease has to expire.
    pub grace: Duration,
    /// How to kill mysqld if it refuses the guard's login; `None` if another program started mysqld.
    pub server: Option<SupervisorOptions>,
}

/// Runs until nothing is left to guard, or another guard has superseded this one.
pub async fn guard(mut options: GuardOptions, mut words: mpsc::Receiver<Word>) {
    options.connect = options.connect.bounded("witness-guard", STATEMENT_LIMIT);
    let mut silence = Silence::new(options.limit, options.grace);
    let mut turn: Option<Turn> = None;
    let mut heard_at = Instant::now();
    let mut looked_at = heard_at;
    let mut retry_at = heard_at;
    loop {
        let word = tokio::time::timeout(silence.pause(), words.recv()).await;
        let mut next = word.ok().map(|word| word.unwrap_or(Word::Ended));
        while let Some(word) = next {
            if word != Word::Ended {
                heard_at = Instant::now();
                turn.get_or_insert_with(|| Turn::take(&options.member_dir));
            }
            silence.hears(word);
            next = words.try_recv().ok();
        }
        let now = Instant::now();
        let step = silence.passes(now.duration_since(looked_at));
        looked_at = now;
        if silence.is_silent() && turn.as_ref().is_some_and(Turn::is_over) {
            return;
        }
        match step {
            GuardStep::End => return,
            GuardStep::Fence { or_kill } if now >= retry_at => {
                match fence(&options, heard_at, or_kill).await {
                    Fenced::Done => silence.is_done(),
                    // A server that is started later on that address is not a primary of clients.
                    Fenced::NobodyListens if silence.has_ended() => return,
                    Fenced::NobodyListens | Fenced::Failed => {}
                }
                retry_at = Instant::now() + RETRY;
            }
            // The closed channel would return immediately, so pause here.
            GuardStep::Wait | GuardStep::Fence { .. } if silence.has_ended() => {
                tokio::time::sleep(silence.pause()).await;
            }
            GuardStep::Wait | GuardStep::Fence { .. } => {}
        }
    }
}

/// The result of an attempt to block readers.
enum Fenced {
    Done,
    /// No server runs that clients could read from.
    NobodyListens,
    Failed,
}

async fn fence(options: &GuardOptions, heard_at: Instant, or_kill: bool) -> Fenced {
    let silent = heard_at.elapsed();
    match raise_in_start_before(&options.connect, silent).await {
        Ok(Some(SetOffline::Changed)) => {
            warn!(
                "the member has said nothing for {silent:.1?}: the sessions of ordinary accounts at its mysqld are closed, and new \
                 ones are refused (offline_mode)"
            );
            Fenced::Done
        }
        Ok(Some(SetOffline::AlreadySo | SetOffline::NotOurs) | None) => Fenced::Done,
        Err(LinkError::Unreachable { .. }) => Fenced::NobodyListens,
        Err(cause) => {
            let server = options.server.as_ref().filter(|_| or_kill);
            let Some(server) = server else {
                warn!(
                    "the member has said nothing for {silent:.1?}, and its mysqld can still be read: {cause}"
                );
                return Fenced::Failed;
            };
            match server.kill().await {
                Ok(()) => {
                    warn!(
                        "the member has said nothing for {silent:.1?}, and its mysqld does not take an order ({cause}): it is killed"
                    );
                    Fenced::Done
                }
                Err(why) => {
                    error!(
                        "the member hangs, its mysqld takes no order ({cause}), and it cannot be killed: {why}"
                    );
                    Fenced::Failed
                }
            }
        }
    }
}

/// The file that names the active guard.
struct Turn {
    file: PathBuf,
    own: String,
}

impl Turn {
    /// Supersedes the guard of an earlier process of the member. The file need not survive a power cut, because no guard survives one.
    fn take(member_dir: &Path) -> Self {
        let turn = Self {
            file: member_dir.join(TURN),
            own: std::process::id().to_string(),
        };
        let new = turn.file.with_extension("new");
        let written = fs::write(&new, &turn.own).and_then(|()| fs::rename(&new, &turn.file));
        if let Err(error) = written {
            warn!(%error, "another guard of this member may act in its place for no reason: {} cannot be written", turn.file.display());
        }
        turn
    }

    /// True if another guard has superseded this one. If the file is unreadable, false.
    fn is_over(&self) -> bool {
        fs::read_to_string(&self.file).is_ok_and(|whose| whose != self.own)
    }
}

// Decides when the guard acts in place of its member. Pure.

/// At most this much time between two checks is counted. A guard that was itself stopped, for example with the whole machine, knows nothing
/// about that time. It reads the member's heartbeats from that time before it counts more.
pub const MOST_AT_ONCE: Duration = Duration::from_secs(1);

/// How long the guard tries to block readers by a statement before it kills mysqld, if it may.
pub const KILL_AFTER: Duration = Duration::from_secs(5);

/// A message from the member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// A heartbeat, with the decision whether to block readers of mysqld if heartbeats stop.
    GoesOn {
        /// True if clients use mysqld as the primary, and another member's mysqld could become the primary.
        guards: bool,
    },
    /// The member has ended, because the pipe is closed.
    Ended,
}

/// The guard's next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardStep {
    /// Wait for the member's next heartbeat.
    Wait,
    /// Block ordinary accounts, because the member was silent for too long.
    Fence {
        /// Whether to kill mysqld if that fails.
        or_kill: bool,
    },
    /// Nothing is left to guard.
    End,
}

/// Measures how long the member has been silent.
///
/// The guard acts only for a member that managed a primary. If a member never reported a primary, or last reported none, its readers cannot
/// see stale data. The guard blocks readers and does nothing else, so a wrong decision costs sessions and no transaction. A member that
/// continues reverts the block as it reverts its own read fence.
#[derive(Debug, Clone)]
pub struct Silence {
    limit: Duration,
    grace: Duration,
    guards: bool,
    ended: bool,
    silent: Duration,
    acted: bool,
}

impl Silence {
    /// Creates the state before the first heartbeat. The guard acts after `limit` of silence, or after `grace` if the member has ended.
    pub fn new(limit: Duration, grace: Duration) -> Self {
        Self {
            limit,
            grace,
            guards: false,
            ended: false,
            silent: Duration::ZERO,
            acted: false,
        }
    }

    /// Records a heartbeat, or the member's end.
    pub fn hears(&mut self, word: Word) {
        match word {
            Word::GoesOn { guards } => {
                self.guards = guards;
                self.silent = Duration::ZERO;
                self.acted = false;
            }
            Word::Ended => self.ended = true,
        }
    }

    /// Adds the time since the last check, and returns the next step. Call it after all received messages were recorded.
    pub fn passes(&mut self, time: Duration) -> GuardStep {
        self.silent += time.min(MOST_AT_ONCE);
        if !self.guards || self.acted {
            return match self.ended {
                true => GuardStep::End,
                false => GuardStep::Wait,
            };
        }
        match self.silent.checked_sub(self.patience()) {
            None => GuardStep::Wait,
            Some(over) => GuardStep::Fence {
                or_kill: over >= KILL_AFTER,
            },
        }
    }

    fn patience(&self) -> Duration {
        if self.ended { self.grace } else { self.limit }
    }

    /// Returns how long to wait for a message before the next check.
    pub fn pause(&self) -> Duration {
        let left = self.patience().saturating_sub(self.silent);
        let due = Some(left).filter(|left| self.guards && !self.acted && !left.is_zero());
        due.map_or(MOST_AT_ONCE, |due| due.min(MOST_AT_ONCE))
    }

    /// Records that readers are blocked, or that no server runs.
    pub fn is_done(&mut self) {
        self.acted = true;
    }

    /// True if the member has ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// True if the last heartbeat is older than the usual interval.
    pub fn is_silent(&self) -> bool {
        self.ended || self.silent >= MOST_AT_ONCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIMARY: Word = Word::GoesOn { guards: true };
    const REPLICA: Word = Word::GoesOn { guards: false };

    /// Returns the guard's steps for these messages, one letter a second: `.` waits, `!` fences, `k` fences or kills, `e` ends.
    fn course(heard: &[(usize, Word)], fenced_at: Option<usize>, seconds: usize) -> String {
        let (limit, grace) = (Duration::from_secs(4), Duration::from_secs(3));
        let mut silence = Silence::new(limit, grace);
        let mut course = String::new();
        for second in 0..seconds {
            for (_, word) in heard.iter().filter(|(at, _)| *at == second) {
                silence.hears(*word);
            }
            course.push(match silence.passes(Duration::from_secs(1)) {
                GuardStep::Wait => '.',
                GuardStep::Fence { or_kill: false } => '!',
                GuardStep::Fence { or_kill: true } => 'k',
                GuardStep::End => 'e',
            });
            if fenced_at == Some(second) {
                silence.is_done();
            }
        }
        course
    }

    #[test]
    fn who_looked_after_a_primary_and_is_silent_is_acted_for() {
        type Row<'a> = (&'a str, &'a [(usize, Word)], Option<usize>, &'a str);
        let table: &[Row<'_>] = &[
            ("nothing was ever said", &[], None, "......"),
            ("a replica's member hangs", &[(0, REPLICA)], None, "......"),
            (
                "a primary's member hangs",
                &[(0, PRIMARY)],
                Some(3),
                "...!..",
            ),
            (
                "the server does not answer either",
                &[(0, PRIMARY)],
                Some(8),
                "...!!!!!k.",
            ),
            (
                "it continues in time",
                &[(0, PRIMARY), (3, PRIMARY)],
                None,
                "......!",
            ),
            (
                "it is no longer the primary's",
                &[(0, PRIMARY), (3, REPLICA)],
                None,
                ".........",
            ),
            (
                "it continued, and hangs again",
                &[(0, PRIMARY), (5, PRIMARY)],
                Some(3),
                "...!....!",
            ),
            (
                "it ended, and did not return",
                &[(0, PRIMARY), (1, Word::Ended)],
                Some(2),
                "..!e",
            ),
            (
                "it hung for long, and was killed",
                &[(0, PRIMARY), (3, Word::Ended)],
                Some(3),
                "...!e",
            ),
            (
                "a replica's member ended",
                &[(0, REPLICA), (1, Word::Ended)],
                None,
                ".e",
            ),
        ];
        for (what, heard, fenced_at, expected) in table {
            assert_eq!(
                &course(heard, *fenced_at, expected.len()),
                expected,
                "{what}"
            );
        }
    }

    #[test]
    fn time_in_which_the_guard_stood_still_itself_does_not_count() {
        let mut silence = Silence::new(Duration::from_secs(4), Duration::from_secs(4));
        silence.hears(PRIMARY);
        assert_eq!(silence.passes(Duration::from_secs(600)), GuardStep::Wait);
        silence.hears(PRIMARY);
        assert_eq!(silence.passes(Duration::from_secs(3)), GuardStep::Wait);
    }

    #[test]
    fn without_a_grace_period_the_end_of_the_member_is_enough() {
        let mut silence = Silence::new(Duration::from_secs(1), Duration::ZERO);
        silence.hears(PRIMARY);
        assert_eq!(silence.passes(Duration::ZERO), GuardStep::Wait);
        silence.hears(Word::Ended);
        let at_once = GuardStep::Fence { or_kill: false };
        assert_eq!(silence.passes(Duration::ZERO), at_once);
    }
}
