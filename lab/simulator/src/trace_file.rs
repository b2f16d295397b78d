//! Writes the members' actions in the format of the model, which checks them against its rules.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use model::trace::{Damage as SeenDamage, Line, Seen as Did, SeenContent, SeenEntry, SeenVote};
use raft_types::{MemberId, Vote};

use crate::event::{Content, Damage, Event, Repair, Seen};
use crate::tick::Tick;

/// The trace file of a run.
pub(crate) struct TraceFile(BufWriter<File>);

impl TraceFile {
    /// Creates the file.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(BufWriter::new(File::create(path)?)))
    }

    /// Writes an event, if the model covers it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&mut self, at: Tick, event: &Event) -> io::Result<()> {
        let Some((member, seen)) = told(event) else {
            return Ok(());
        };
        let at_ms = u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
        let line = Line {
            at_ms,
            member,
            seen,
        };
        serde_json::to_writer(&mut self.0, &line)?;
        self.0.write_all(b"\n")
    }
}

fn told(event: &Event) -> Option<(Option<MemberId>, Did)> {
    let (member, seen) = match event.clone() {
        Event::Appended { member, entries } => {
            let entries = all(&entries);
            (member, Did::Appended { entries })
        }
        Event::Durable { member, upto } => (member, Did::Durable { upto }),
        Event::Truncated { member, keep } => (member, Did::Truncated { keep }),
        Event::CutBack { member, keep } => (member, Did::CutBack { keep }),
        Event::Repaired(Repair { after, term, loss }) => {
            return Some((None, Did::Repaired { after, term, loss }));
        }
        Event::Began { member, before, .. } => (member, Did::Began { before }),
        Event::Voted { member, vote } => {
            let vote = stored(&vote);
            (member, Did::Voted { vote })
        }
        Event::Opened {
            member,
            log,
            damage,
        } => {
            let opened = Did::Opened {
                floor: log.floor,
                entries: all(&log.entries),
                vote: log.vote.as_ref().map(stored),
                damage: match damage {
                    Damage::None => SeenDamage::None,
                    Damage::Tail | Damage::Closed => SeenDamage::Rotten,
                    Damage::Wiped => SeenDamage::Wiped,
                },
            };
            (member, opened)
        }
        Event::Committed { member, entries } => {
            let upto = entries.last()?.op_id;
            (member, Did::Committed { upto })
        }
        Event::Acknowledged { member, op_id, .. } => (member, Did::Acknowledged { op_id }),
        Event::Read { member, mark } => (member, Did::Served { mark }),
        _ => return None,
    };
    Some((Some(member), seen))
}

fn all(entries: &[Seen]) -> Vec<SeenEntry> {
    let entry = |seen: &Seen| SeenEntry {
        op_id: seen.op_id,
        content: match &seen.content {
            Content::Blank => SeenContent::Blank,
            Content::Transaction(digest) | Content::Rotate(digest) => {
                SeenContent::Write(digest.bits())
            }
            Content::Membership(digest, sets) => SeenContent::Voters(sets.to_vec(), digest.bits()),
        },
    };
    entries.iter().map(entry).collect()
}

fn stored(vote: &Vote) -> SeenVote {
    SeenVote {
        term: vote.leader_id.term,
        elected: vote.committed,
        to: vote.leader_id.voted_for,
    }
}
