//! Checks that failover does not change the primary during a pause.

use std::collections::BTreeSet;

use raft_types::MemberId;

use crate::checkers::Checker;
use crate::event::Event;
use crate::operations::Operation;
use crate::tick::Tick;

/// While failover is paused, only the server of the pinned primary may open, or the server of a member that an operator has promoted since.
#[derive(Default)]
pub(super) struct APauseKeepsThePlace {
    /// Members that an operator has promoted since the pause was requested.
    promoted: BTreeSet<MemberId>,
    /// Members that may open while failover is paused. `None`: there is no pause.
    may_open: Option<BTreeSet<MemberId>>,
}

impl Checker for APauseKeepsThePlace {
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
            _ => {}
        }
        Ok(())
    }
}
