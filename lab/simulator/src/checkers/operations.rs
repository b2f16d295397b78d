//! Guarantees to operators: a pause keeps the primary in place; a gracefully stopped member leaves no running server, and no ring without a
//! primary; a server without its copied data is not used; and conversions into a ring and back have one primary.

use std::collections::BTreeSet;

use raft_types::MemberId;

use crate::checkers::checker::Checker;
use crate::event::Event;
use crate::operations::{Operation, Stopped};
use crate::tick::Tick;

/// While failover is paused, only the pinned primary's server opens, and those promoted since by an operator.
#[derive(Default)]
pub(super) struct APauseKeepsThePlace {
    /// Members promoted since a pause was requested.
    promoted: BTreeSet<MemberId>,
    /// Members that may open while failover is paused.
    may_open: Option<BTreeSet<MemberId>>,
}

impl Checker for APauseKeepsThePlace {
    fn name(&self) -> &'static str {
        "a pause keeps the primary's place"
    }

    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        let Event::Operation(operation) = event else {
            return Ok(());
        };
        match (operation, &mut self.may_open) {
            (Operation::AsksForAPause, _) => self.promoted.clear(),
            (Operation::Paused { primary }, may_open) => {
                let promoted = std::mem::take(&mut self.promoted);
                let may_open = may_open.get_or_insert(promoted);
                may_open.insert(*primary);
            }
            (Operation::Promotes { to }, Some(may_open)) => drop(may_open.insert(*to)),
            (Operation::Promotes { to }, None) => drop(self.promoted.insert(*to)),
            (Operation::Resumes, may_open) => *may_open = None,
            (Operation::Opens { by }, Some(may_open)) if !may_open.contains(by) => {
                return Err(format!(
                    "the server of {by} opens by itself, although failover is paused for {may_open:?}"
                ));
            }
            (
                Operation::Opens { .. }
                | Operation::Stopped(_)
                | Operation::TwoPrimaries { .. }
                | Operation::UsedWithoutItsData { .. },
                _,
            ) => {}
        }
        Ok(())
    }
}

/// A gracefully stopped member has stopped its server, and has transferred the leadership if another member could take it.
pub(super) struct WhoStopsHandsOver;

impl Checker for WhoStopsHandsOver {
    fn name(&self) -> &'static str {
        "who is stopped in good order hands over"
    }

    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        let Event::Operation(Operation::Stopped(stopped)) = event else {
            return Ok(());
        };
        let Stopped {
            member,
            server_runs,
            hands_over,
            successor,
        } = stopped;
        if *server_runs {
            return Err(format!(
                "member {member} was stopped, and its server still runs"
            ));
        }
        match successor {
            None if *hands_over => Err(format!(
                "member {member} led and was stopped, and nobody serves in its place"
            )),
            _ => Ok(()),
        }
    }
}

/// A server whose data were removed for an interrupted or running copy is not the primary, and applies nothing.
pub(super) struct NoServerIsUsedWithoutItsData;

impl Checker for NoServerIsUsedWithoutItsData {
    fn name(&self) -> &'static str {
        "no server is used without its data"
    }

    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        match event {
            Event::Operation(Operation::UsedWithoutItsData { member }) => Err(format!(
                "the server of {member} has no data since a copy began, and takes writes or applies"
            )),
            _ => Ok(()),
        }
    }
}

/// While an unmanaged server accepts writes, no other one does: its commits do not wait for a ring.
pub(super) struct OnePrimaryOnTheWay;

impl Checker for OnePrimaryOnTheWay {
    fn name(&self) -> &'static str {
        "there is one primary on the way into a ring and back"
    }

    fn saw(&mut self, _: Tick, event: &Event) -> Result<(), String> {
        match event {
            Event::Operation(Operation::TwoPrimaries { plain, other }) => Err(format!(
                "the server of {plain} takes writes without a ring, and that of {other} takes writes as well"
            )),
            _ => Ok(()),
        }
    }
}
