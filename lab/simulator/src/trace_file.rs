//! Members' actions, in the format that is checked against the model's rules.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use model::trace::{Damage as SeenDamage, Line, Seen as Did, SeenContent, SeenEntry, SeenVote};
use raft_types::{OpId, Vote};

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
    Some(match event {
        Event::Appended { member, entries } => Did::Appended {
            member: *member,
            entries: all(entries),
        },
        Event::Durable { member, upto } => Did::Durable {
            member: *member,
            upto: *upto,
        },
        Event::Truncated { member, keep } => Did::Truncated {
            member: *member,
            keep: *keep,
        },
        Event::CutBack { member, keep } => Did::CutBack {
            member: *member,
            keep: *keep,
        },
        Event::Repaired(Repair { after, term, loss }) => Did::Repaired {
            after: *after,
            term: *term,
            loss: *loss,
        },
        Event::Began { member, before, .. } => Did::Began {
            member: *member,
            before: *before,
        },
        Event::Voted { member, vote } => Did::Voted {
            member: *member,
            vote: stored(vote),
        },
        Event::Opened {
            member,
            floor,
            entries,
            vote,
            damage,
        } => Did::Opened {
            member: *member,
            floor: *floor,
            entries: all(entries),
            vote: vote.as_ref().map(stored),
            damage: match damage {
                Damage::None => SeenDamage::None,
                Damage::Tail | Damage::Closed => SeenDamage::Rotten,
                Damage::Wiped => SeenDamage::Wiped,
            },
        },
        Event::Committed { member, entries } => Did::Committed {
            member: *member,
            upto: last(entries)?,
        },
        Event::Acknowledged { member, op_id, .. } => Did::Acknowledged {
            member: *member,
            op_id: *op_id,
        },
        Event::Read { member, mark } => Did::Served {
            member: *member,
            mark: *mark,
        },
        // Actions of others than members, or contained in the members' votes and entries.
        Event::RefusedToOpen { .. }
        | Event::EngineStopped { .. }
        | Event::Led { .. }
        | Event::Refused { .. }
        | Event::Told { .. }
        | Event::Operation(_)
        | Event::Unexplained { .. }
        | Event::BeyondItsProgram { .. }
        | Event::UsedNumberTaken { .. }
        | Event::Regions { .. }
        | Event::Healed
        | Event::PutBack { .. }
        | Event::Panicked { .. }
        | Event::Finished
        | Event::Stuck { .. }
        | Event::Wedged { .. } => return None,
    })
}

fn last(entries: &[Seen]) -> Option<OpId> {
    entries.last().map(|last| last.op_id)
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
