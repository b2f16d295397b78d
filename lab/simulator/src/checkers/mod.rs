//! Safety properties. A checker receives every event in order and reports violations with the members and the entries. It is
//! independent of the events' causes.

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

/// One property, checked against all events in order.
trait Checker: Send {
    /// An error is a violation.
    fn saw(&mut self, at: Tick, event: &Event) -> Result<(), String>;
}

/// All of them, with their names.
pub(crate) struct Checkers {
    named: Vec<(&'static str, Box<dyn Checker>)>,
    is_broken: bool,
}

impl Checkers {
    /// In a deliberately broken ring a property of the ring has to be violated.
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

    /// Notifies all of them; returns the first violation and its message.
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
