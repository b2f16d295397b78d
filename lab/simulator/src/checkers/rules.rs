//! Properties that a single event can violate, as a table. Examples: a reused member number, a server without its data, a ring that does
//! not commit in time. If a rule depends on more than the event, the code that reports the event has checked the rest.

use crate::event::{Damage, Event};
use crate::operations::Operation;

/// The debug assertions of openraft that fail without a fault: file and message.
const KNOWN: [(&str, &str); 1] = [
    // The stream of a former leader reads a log that the next leader has truncated, before it checks whether it still leads. Without debug
    // assertions the request is empty, and the later check drops it.
    ("stream_state.rs", "received reversed range"),
];

/// Returns the rule that an event violates, and the message. If the ring is broken deliberately, a panic or a refused log is no violation,
/// because the product defends itself that way.
pub(super) fn check(event: &Event, is_broken: bool) -> Result<(), (&'static str, String)> {
    let violated = match event {
        Event::UsedNumberTaken { member, by } => Some((
            "the number of a member is used once",
            format!(
                "member {by} adds a member {member} with another disk, although the number was used"
            ),
        )),
        Event::BeyondItsProgram { words } => {
            Some(("programs speak the ring's format", words.clone()))
        }
        Event::Unexplained { words } => Some((
            "what clients of the servers saw has an order",
            words.clone(),
        )),
        Event::Wedged { words } => {
            Some(("a ring continues without a removed member", words.clone()))
        }
        Event::Operation(operation) => of_an_operation(operation),
        _ if is_broken => None,
        event => of_progress(event),
    };
    violated.map_or(Ok(()), Err)
}

/// Checks the guarantees to operators.
fn of_an_operation(operation: &Operation) -> Option<(&'static str, String)> {
    match operation {
        Operation::Stopped(stopped) => {
            let member = stopped.member;
            let what = match stopped.successor {
                _ if stopped.server_runs => "was stopped, and its server still runs",
                None if stopped.hands_over => "led and was stopped, and no member serves instead",
                _ => return None,
            };
            let rule = "a member that shuts down hands over";
            Some((rule, format!("member {member} {what}")))
        }
        Operation::UsedWithoutItsData { member } => Some((
            "no server is used without its data",
            format!(
                "the server of {member} has no data since a copy began, and takes writes or applies"
            ),
        )),
        // The commits of an unmanaged server do not wait for the ring.
        Operation::TwoPrimaries { plain, other } => Some((
            "there is one primary on the way into a ring and back",
            format!(
                "the server of {plain} takes writes without a ring, and that of {other} takes writes as well"
            ),
        )),
        _ => None,
    }
}

/// Checks that members run, that logs open, and that the ring commits after all faults are fixed. The time limit is in `healing`.
fn of_progress(event: &Event) -> Option<(&'static str, String)> {
    let opens = "a log opens after every crash";
    match event {
        Event::Panicked { member, words } if !is_known(words) => {
            Some(("nothing panics", format!("member {member}: {words}")))
        }
        // No data directory is ever restored to an earlier state, so that no member may report a restored one.
        Event::RestoredDirectory { .. } => Some(("no member is accused", event.to_string())),
        Event::RefusedToOpen {
            member,
            why,
            damage: Damage::None,
        } => {
            let words = "cannot open its log, although nothing was damaged";
            Some((opens, format!("member {member} {words}: {why}")))
        }
        Event::Opened {
            member,
            damage: Damage::Closed,
            ..
        } => {
            let words = "starts as usual, although a bit of its log was flipped";
            Some((opens, format!("member {member} {words}")))
        }
        Event::EngineStopped {
            member,
            why,
            excused: false,
        } => {
            let words = "stopped, although its disk works";
            Some((
                opens,
                format!("the engine of member {member} {words}: {why}"),
            ))
        }
        Event::Stuck { words } => Some(("after healing the ring commits in time", words.clone())),
        _ => None,
    }
}

fn is_known(words: &str) -> bool {
    let mut known = KNOWN.iter();
    known.any(|(file, said)| words.contains(file) && words.contains(said))
}
