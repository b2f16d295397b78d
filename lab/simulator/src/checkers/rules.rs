//! Properties that one event alone violates, as a table: a used number, a server without its data, a ring that does not commit in time, …
//! Where a rule needs more than the event, the world or the clients have judged it before.

use crate::event::{Damage, Event};
use crate::operations::Operation;

/// The engine's debug assertions that fail without a fault: the file, and the message.
const KNOWN: [(&str, &str); 1] = [
    // The stream of a deposed leader reads a log that its successor has truncated, before it checks its leadership. Without debug
    // assertions the request is empty, and that check drops it.
    ("stream_state.rs", "received reversed range"),
];

/// The rule that an event violates, and the message. In a deliberately broken ring, a panic or a log that refuses to open is the product's
/// own defence.
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

/// Guarantees to operators.
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
        // Its commits do not wait for a ring.
        Operation::TwoPrimaries { plain, other } => Some((
            "there is one primary on the way into a ring and back",
            format!(
                "the server of {plain} takes writes without a ring, and that of {other} takes writes as well"
            ),
        )),
        _ => None,
    }
}

/// Members run, logs open, and the ring commits after all faults are fixed; see `healing` for the limit.
fn of_progress(event: &Event) -> Option<(&'static str, String)> {
    let opens = "a log opens after every crash";
    match event {
        Event::Panicked { member, words } if !is_known(words) => {
            Some(("nothing panics", format!("member {member}: {words}")))
        }
        // Data directories are never restored to an earlier state, so no member may report one.
        Event::PutBack { .. } => Some(("no member is accused", event.to_string())),
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
