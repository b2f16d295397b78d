//! Safety properties, one file each. A checker receives every event in order and reports violations with the members and the entries. It is
//! independent of the events' causes.

mod checker;
mod committed;
mod durability;
mod formats;
mod leaders;
mod log_matching;
mod member_log;
mod operations;
mod progress;
mod quorums;
mod regions;
mod served;

use crate::checkers::checker::Checker;
use crate::event::Event;
use crate::tick::Tick;

/// All of them.
pub(crate) struct Checkers(Vec<Box<dyn Checker>>);

impl Checkers {
    /// In a deliberately broken ring, a panic or a log that refuses to open is the product's own defence: then a property of the ring has
    /// to be violated.
    pub(crate) fn new(broken: bool) -> Self {
        let mut checkers: Vec<Box<dyn Checker>> = vec![
            Box::new(leaders::OneLeaderPerTerm::default()),
            Box::new(log_matching::LogsMatch::default()),
            Box::new(quorums::ConsecutiveQuorumsIntersect::default()),
            Box::new(committed::CommittedNeverChanges::default()),
            Box::new(committed::NothingAcknowledgedIsLost::default()),
            Box::new(served::NothingUncommittedIsServed::default()),
            Box::new(served::ClientsSawOneOrder),
            Box::new(durability::DurableSurvives::default()),
            Box::new(leaders::NumbersAreUsedOnce),
            Box::new(formats::ProgramsSpeakTheRingsFormat),
            Box::new(progress::WhoeverIsLetGoIsNotNeeded),
            Box::new(regions::RegionsAreNotCutOff::default()),
            Box::new(operations::APauseKeepsThePlace::default()),
            Box::new(operations::WhoStopsHandsOver),
            Box::new(operations::NoServerIsUsedWithoutItsData),
            Box::new(operations::OnePrimaryOnTheWay),
        ];
        if !broken {
            checkers.push(Box::new(progress::NothingPanics));
            checkers.push(Box::new(progress::NobodyIsAccused));
            checkers.push(Box::new(progress::LogsOpen));
            checkers.push(Box::new(progress::TheRingComesBack));
        }
        Self(checkers)
    }

    /// Notifies all of them; returns the first violation and its message.
    pub(crate) fn saw(&mut self, at: Tick, event: &Event) -> Result<(), (&'static str, String)> {
        let mut verdict = Ok(());
        for checker in &mut self.0 {
            let found = checker.saw(at, event);
            if let Err(words) = found
                && verdict.is_ok()
            {
                verdict = Err((checker.name(), words));
            }
        }
        verdict
    }
}
