//! Members' actions, in the format that is checked against the model's rules.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use model::trace::{Damage as SeenDamage, Line, Seen as Did, SeenContent, SeenEntry, SeenVote};
use raft_types::Vote;

use crate::event::{Content, Damage, Event, Repair, Seen};
use crate::tick::Tick;

/// The file of a run's trace.
pub(crate) struct TraceFile(BufWriter<File>);

impl TraceFile {
    /// A new file.
    ///
    /// # Errors
    /// When it cannot be created.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(BufWriter::new(File::create(path)?)))
    }

    /// Writes the events that the model covers.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write(&mut self, at: Tick, event: &Event) -> io::Result<()> {
        let Some(seen) = told(event) else {
            return Ok(());
        };
        let at_ms = u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX);
        serde_json::to_writer(&mut self.0, &Line { at_ms, seen })?;
        self.0.write_all(b"\n")
    }
}

fn told(event: &Event) -> Option<Did> {
    Some(match event.clone() {
        Event::Appended { member, entries } => {
            let entries = all(&entries);
            Did::Appended { member, entries }
        }
        Event::Durable { member, upto } => Did::Durable { member, upto },
        Event::Truncated { member, keep } => Did::Truncated { member, keep },
        Event::CutBack { member, keep } => Did::CutBack { member, keep },
        Event::Repaired(Repair { after, term, loss }) => Did::Repaired { after, term, loss },
        Event::Began { member, before, .. } => Did::Began { member, before },
        Event::Voted { member, vote } => {
            let vote = stored(&vote);
            Did::Voted { member, vote }
        }
        Event::Opened {
            member,
            log,
            damage,
        } => Did::Opened {
            member,
            floor: log.floor,
            entries: all(&log.entries),
            vote: log.vote.as_ref().map(stored),
            damage: match damage {
                Damage::None => SeenDamage::None,
                Damage::Tail | Damage::Closed => SeenDamage::Rotten,
                Damage::Wiped => SeenDamage::Wiped,
            },
        },
        Event::Committed { member, entries } => {
            let upto = entries.last()?.op_id;
            Did::Committed { member, upto }
        }
        Event::Acknowledged { member, op_id, .. } => Did::Acknowledged { member, op_id },
        Event::Read { member, mark } => Did::Served { member, mark },
        _ => return None,
    })
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
