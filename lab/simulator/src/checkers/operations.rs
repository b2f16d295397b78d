//! What operators are promised: a pause keeps the primary's place, and a member that is stopped in good order leaves no server
//! behind, nor a ring without a primary; a server whose copy has not come is not used; and on the way into a ring and back there is one
//! primary.

use std::collections::BTreeSet;

use raft_types::MemberId;

use crate::checkers::checker::Checker;
use crate::event::Event;
use crate::operations::{Operation, Stopped};
use crate::tick::Tick;

/// While failover is paused, no server opens but the pinned primary's, and one that an operator has promoted since.
#[derive(Default)]
pub(super) struct APauseKeepsThePlace {
    /// Whom operators have promoted since one asked for the pause.
    promoted: BTreeSet<MemberId>,
    /// Who may open, while failover is paused.
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

/// Who is stopped in good order has stopped its server, and has handed the leadership over where somebody could take it.
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

/// A server that has lost its data to a copy, which was interrupted or is under way, is not the primary, and nothing is applied to it.
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

/// While a server takes writes that no member manages, no other one does: its commits do not wait for a ring.
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
