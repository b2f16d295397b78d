//! The safety properties. A checker receives all events in order, and reports a violation with the members and the entries involved. It
//! does not depend on the causes of the events.

mod committed;
mod durability;
mod leaders;
mod log_matching;
mod member_log;
mod operations;
mod quorums;
mod regions;
mod rules;
mod served;

use crate::event::Event;
use crate::tick::Tick;

/// A property that is checked against all events in order.
trait Checker: Send {
    /// Checks an event. An error is a violation.
    fn saw(&mut self, at: Tick, event: &Event) -> Result<(), String>;
}

/// All checkers, with the names of their properties.
pub(crate) struct Checkers {
    named: Vec<(&'static str, Box<dyn Checker>)>,
    is_broken: bool,
}

impl Checkers {
    /// Creates all checkers. `is_broken`: the ring is broken deliberately, and a property must be violated.
    pub(crate) fn new(is_broken: bool) -> Self {
        let named = vec![
            named::<leaders::OneLeaderPerTerm>("one leader per term"),
            named::<log_matching::LogsMatch>("logs match"),
            named::<quorums::ConsecutiveQuorumsIntersect>("consecutive quorums intersect"),
            named::<committed::CommittedNeverChanges>("a committed entry never changes"),
            named::<committed::NothingAcknowledgedIsLost>("nothing acknowledged is lost"),
            named::<served::NothingUncommittedIsServed>("nothing un-committed or stale is served"),
            named::<durability::DurableSurvives>("what a store acknowledged survives a crash"),
            named::<regions::RegionsAreNotCutOff>("a purge cuts no region off"),
            named::<operations::APauseKeepsThePlace>("a pause keeps the primary's place"),
        ];
        Self { named, is_broken }
    }

    /// Passes an event to all checkers. Returns the first violation: the property's name, and the message.
    pub(crate) fn saw(&mut self, at: Tick, event: &Event) -> Result<(), (&'static str, String)> {
        let mut verdict = Ok(());
        for (name, checker) in &mut self.named {
            let found = checker.saw(at, event);
            if let Err(words) = found
                && verdict.is_ok()
            {
                verdict = Err((*name, words));
            }
        }
        verdict.and_then(|()| rules::check(event, self.is_broken))
    }
}

fn named<C: Checker + Default + 'static>(name: &'static str) -> (&'static str, Box<dyn Checker>) {
    (name, Box::new(C::default()))
}
