//! Decides whether the commits of a primary complete. Pure. A server with a stalled disk still answers readers and commits nothing; a
//! stopped server does not answer. The check writes nothing: it observes sessions in commit, so a server without commits never counts as
//! stalled.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::statvfs;
use spilling_bytes::long_work;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use mysqld_server::settings::{CommitLook, Committing};

/// The most bytes that are received without a write: heartbeats are smaller, pieces of a large transaction are larger.
const RECEIVED_IN_PASSING: u64 = 64 * 1024;
/// By how much the server's seconds may be too low. They are truncated, and the server has another clock.
const SECONDS_SHORT: Duration = Duration::from_secs(2);
const STANDS: &str = "mysqld answers queries, but no commit finishes and none is waiting for the ring: check its disk (full or \
                      stalled)";
const NO_ROOM: &str =
    "the disk of mysqld's data directory is full: statements are refused and none is executed";

/// Result of one observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CommitSight {
    /// The server reported its commits.
    Answered(CommitLook),
    /// The server did not answer in time; with a message.
    Silent(String),
    /// Unknown: the server refused the query, or was not queried.
    Nothing,
}

/// The member's own state at the same moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RingSide {
    /// True if commits wait for the ring, which is not mysqld's fault.
    pub(crate) waits: bool,
    /// The number of received transactions, and of sent ACKs.
    pub(crate) progress: (u64, u64),
    /// Bytes received from the server.
    pub(crate) received: u64,
}

/// A stall: the server's commits do not complete, or it does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// When the stall was first observed.
    pub since: Instant,
    /// The observation, as a message.
    pub why: String,
}

/// The observation at the start of a possible stall.
#[derive(Debug)]
struct Begun {
    since: Instant,
    ring: RingSide,
    /// The server's report at that time; `None` if it did not answer.
    look: Option<CommitLook>,
    /// Sessions that have been in the same commit ever since, each with the number of its earlier commits.
    sessions: BTreeSet<(u64, Option<u64>)>,
}

/// Compares each observation with the earlier ones.
#[derive(Debug, Default)]
pub(crate) struct CommitWatch(Option<Begun>);

impl CommitWatch {
    /// Returns the verdict after one more observation, which began at `now`.
    ///
    /// A server is stalled while all these conditions hold from one observation to the next:
    ///
    /// * at least one session is in the same commit;
    /// * no GTID was added to those executed;
    /// * no bytes were written to a binlog file (a large transaction takes long);
    /// * no transaction was received, and the ring waits for none.
    ///
    /// The last condition distinguishes a broken disk from a missing quorum. The same commit means the same statement and the same number
    /// of completed commits. That distinguishes a waiting session from a session that writes without the binlog.
    ///
    /// On a full disk, mysqld may refuse statements before their commit, if a table's file cannot grow. Then more refusals without any
    /// other progress suffice.
    pub(crate) fn see(
        &mut self,
        sight: CommitSight,
        ring: RingSide,
        now: Instant,
    ) -> Option<Standing> {
        let before = self.0.take().filter(|begun| begun.goes_on_at(&ring));
        let look = match sight {
            CommitSight::Nothing => return None,
            CommitSight::Silent(cause) => {
                let since = before.as_ref().map(|begun| begun.since);
                self.0 = before.or(Some(Begun {
                    since: now,
                    ring,
                    look: None,
                    sessions: BTreeSet::new(),
                }));
                let why = format!("mysqld does not answer: {cause}");
                return since.map(|since| Standing { since, why });
            }
            CommitSight::Answered(look) => look,
        };
        if ring.waits || (look.committing.is_empty() && look.refused.is_none()) {
            return None;
        }
        if let Some(mut begun) = before
            && begun.look.as_ref().is_some_and(|then| then.is_like(&look))
        {
            let stood = now.saturating_duration_since(begun.since);
            let stays = |commit: &&Committing| {
                begun.sessions.contains(&which(commit)) && commit.ran + SECONDS_SHORT >= stood
            };
            let staying: BTreeSet<_> = look.committing.iter().filter(stays).map(which).collect();
            let refused_then = begun.look.as_ref().and_then(|then| then.refused);
            let refused = refused_then.is_some() && refused_then < look.refused;
            let why = match (staying.is_empty(), refused) {
                (_, true) => Some(NO_ROOM),
                (false, false) => Some(STANDS),
                (true, false) => None,
            };
            if let Some(why) = why {
                let since = begun.since;
                begun.sessions = staying;
                self.0 = Some(begun);
                let why = why.to_owned();
                return Some(Standing { since, why });
            }
        }
        self.0 = Some(Begun {
            since: now,
            ring,
            sessions: look.committing.iter().map(which).collect(),
            look: Some(look),
        });
        None
    }
}

fn which(commit: &Committing) -> (u64, Option<u64>) {
    (commit.session, commit.ended)
}

impl Begun {
    fn goes_on_at(&self, ring: &RingSide) -> bool {
        let received = ring.received.saturating_sub(self.ring.received);
        ring.progress == self.ring.progress && received < RECEIVED_IN_PASSING
    }
}

// True if the file system of a server's data directory has room.

/// With less free space than this, a table's file may fail to grow. InnoDB requests 4 MiB at a time, and more if a row is larger. In bytes.
const ROOM: u64 = 64 << 20;
/// A file system that does not answer within this time is not queried again until it has answered.
const PATIENCE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Room {
    folder: Option<PathBuf>,
    asked: Option<JoinHandle<bool>>,
}

impl Room {
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder,
            asked: None,
        }
    }

    /// True if too little space is left for users other than root. A file system that does not answer, or is remote, counts as having room.
    pub(super) async fn is_gone(&mut self) -> bool {
        let Some(folder) = &self.folder else {
            return false;
        };
        let folder = folder.clone();
        let asked = self.asked.get_or_insert_with(|| {
            tokio::spawn(long_work::on_disk(move || {
                statvfs(&folder).is_ok_and(|space| space.f_bavail * space.f_frsize < ROOM)
            }))
        });
        let Ok(gone) = tokio::time::timeout(PATIENCE, asked).await else {
            return false;
        };
        self.asked = None;
        gone.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an observation. Each session is a number, with the seconds of its statement.
    fn answered(executed: &str, binlog_bytes: u64, committing: &[(u64, u64)]) -> CommitSight {
        let seconds = |(session, ran): &(u64, u64)| Committing {
            session: *session,
            ran: Duration::from_secs(*ran),
            ended: Some(7),
        };
        CommitSight::Answered(CommitLook {
            start: 1,
            executed: executed.to_owned(),
            binlog_bytes,
            committing: committing.iter().map(seconds).collect(),
            refused: None,
        })
    }

    /// Returns an observation of one session after `ended` commits. Its statement has run for `seconds`.
    fn one(seconds: u64, ended: Option<u64>) -> CommitSight {
        CommitSight::Answered(CommitLook {
            start: 1,
            executed: "a:1-7".to_owned(),
            binlog_bytes: 100,
            committing: vec![Committing {
                session: 5,
                ran: Duration::from_secs(seconds),
                ended,
            }],
            refused: None,
        })
    }

    /// Returns an observation without sessions in commit, in which `refused` statements failed for lack of space.
    fn refused(executed: &str, refused: u64) -> CommitSight {
        CommitSight::Answered(CommitLook {
            start: 1,
            executed: executed.to_owned(),
            binlog_bytes: 100,
            committing: Vec::new(),
            refused: Some(refused),
        })
    }

    fn silent() -> CommitSight {
        CommitSight::Silent("no greeting".to_owned())
    }

    /// Returns for each observation, one a second, since which second the server has been stalled.
    fn course(looks: Vec<(CommitSight, RingSide)>) -> Vec<Option<u64>> {
        let begin = Instant::now();
        let mut watch = CommitWatch::default();
        let looks = looks.into_iter().zip(0..);
        let stands = looks.map(|((sight, ring), second)| {
            let standing = watch.see(sight, ring, begin + Duration::from_secs(second))?;
            Some((standing.since - begin).as_secs())
        });
        stands.collect()
    }

    #[test]
    fn commits_that_do_not_end_are_seen_and_nothing_else_is_taken_for_them() {
        let calm = RingSide::default();
        let waits = RingSide {
            waits: true,
            ..calm
        };
        let acked = |acks| RingSide {
            progress: (acks, acks),
            ..calm
        };
        let received = |received| RingSide { received, ..calm };
        let stuck = |second| answered("a:1-7", 100, &[(5, second), (6, second)]);
        let table = [
            (
                "a stalled disk",
                vec![(stuck(0), calm), (stuck(1), calm), (stuck(2), calm)],
                vec![None, Some(0), Some(0)],
            ),
            (
                "a quorum that is missing",
                vec![(stuck(0), waits), (stuck(1), waits), (stuck(2), waits)],
                vec![None, None, None],
            ),
            (
                "a commit ends at each look",
                vec![
                    (answered("a:1-7", 100, &[(5, 0)]), calm),
                    (answered("a:1-8", 200, &[(5, 0)]), calm),
                    (answered("a:1-9", 300, &[(5, 0)]), calm),
                ],
                vec![None, None, None],
            ),
            (
                "a large transaction is written to the binlog",
                vec![
                    (answered("a:1-7", 1 << 20, &[(5, 9)]), calm),
                    (answered("a:1-7", 2 << 20, &[(5, 10)]), calm),
                    (answered("a:1-7", 3 << 20, &[(5, 11)]), calm),
                ],
                vec![None, None, None],
            ),
            (
                "a large transaction comes in",
                vec![
                    (stuck(0), received(0)),
                    (stuck(1), received(1 << 20)),
                    (stuck(2), received(2 << 20)),
                ],
                vec![None, None, None],
            ),
            (
                "heartbeats come in",
                vec![(stuck(0), received(0)), (stuck(1), received(50))],
                vec![None, Some(0)],
            ),
            (
                "no session commits",
                vec![
                    (answered("a:1-7", 100, &[]), calm),
                    (answered("a:1-7", 100, &[]), calm),
                ],
                vec![None, None],
            ),
            (
                "one session loads without the binlog",
                (0..6)
                    .map(|_| (answered("a:1-7", 100, &[(5, 0)]), calm))
                    .collect(),
                vec![None, Some(0), Some(0), None, Some(3), Some(3)],
            ),
            (
                "one statement stores the statistics of one table after the other",
                (0..6)
                    .map(|second| (one(second, Some(second)), calm))
                    .collect(),
                vec![None; 6],
            ),
            (
                "the same, and the disk stalls under it",
                [0, 1, 2, 2, 2]
                    .into_iter()
                    .zip(0..)
                    .map(|(ended, second)| (one(second, Some(ended)), calm))
                    .collect(),
                vec![None, None, None, Some(2), Some(2)],
            ),
            (
                "a server that does not count",
                vec![(one(0, None), calm), (one(1, None), calm)],
                vec![None, Some(0)],
            ),
            (
                "others than before",
                vec![
                    (answered("a:1-7", 100, &[(5, 0)]), calm),
                    (answered("a:1-7", 100, &[(6, 0)]), calm),
                    (answered("a:1-7", 100, &[(6, 1)]), calm),
                ],
                vec![None, None, Some(1)],
            ),
            (
                "the disk moves again",
                vec![
                    (stuck(0), calm),
                    (stuck(1), calm),
                    (answered("a:1-9", 300, &[]), acked(2)),
                    (answered("a:1-9", 300, &[(5, 0)]), acked(2)),
                ],
                vec![None, Some(0), None, None],
            ),
            (
                "a server that is stopped",
                vec![
                    (answered("a:1-7", 100, &[]), calm),
                    (silent(), calm),
                    (silent(), calm),
                    (silent(), calm),
                    (answered("a:1-7", 100, &[]), calm),
                ],
                vec![None, None, Some(1), Some(1), None],
            ),
            (
                "too slow to answer, and commits",
                vec![(silent(), acked(1)), (silent(), acked(2))],
                vec![None, None],
            ),
            (
                "stuck, then silent, too",
                vec![(stuck(0), calm), (stuck(1), calm), (silent(), calm)],
                vec![None, Some(0), Some(0)],
            ),
            (
                "a full disk, and statements that are refused for it, not in each second",
                [0, 0, 2, 2, 3]
                    .map(|count| (refused("a:1-7", count), calm))
                    .to_vec(),
                vec![None, None, Some(1), Some(1), Some(1)],
            ),
            (
                "a full disk, on which some still commit",
                vec![
                    (refused("a:1-7", 1), calm),
                    (refused("a:1-8", 2), calm),
                    (refused("a:1-9", 3), calm),
                ],
                vec![None, None, None],
            ),
            (
                "a full disk that gets room",
                vec![
                    (refused("a:1-7", 1), calm),
                    (refused("a:1-7", 2), calm),
                    (answered("a:1-7", 100, &[]), calm),
                    (refused("a:1-7", 3), calm),
                ],
                vec![None, Some(0), None, None],
            ),
            (
                "refused, while a quorum is missing",
                vec![(refused("a:1-7", 1), waits), (refused("a:1-7", 2), waits)],
                vec![None, None],
            ),
            (
                "refuses us",
                vec![(CommitSight::Nothing, calm), (CommitSight::Nothing, calm)],
                vec![None, None],
            ),
        ];
        for (what, looks, expected) in table {
            assert_eq!(course(looks), expected, "{what}");
        }
    }
}
