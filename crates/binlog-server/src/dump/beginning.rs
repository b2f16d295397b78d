//! Where a dump begins, or why it cannot. What cannot be mended by trying again is error 1236, as from any source.

use std::time::Duration;

use binlog_format::gtid::GtidSet;

use super::feed::Rule;
use super::request::Wanted;
use crate::answers::{ErrorAnswer, code};
use crate::committed_log::{CommittedLog, FileNumber, KeptFile, Position};

/// The offset of the first event.
pub(super) const FIRST_EVENT: u64 = 4;

/// The begin of a dump. The file stays for as long as it is read.
pub(super) struct Beginning {
    pub(super) at: Position,
    pub(super) rule: Rule,
    pub(super) kept: KeptFile,
}

/// Finds the begin; waits when the consumer is ahead of this log, which others may have longer.
pub(super) async fn find(
    log: &dyn CommittedLog,
    wanted: Wanted,
    registered_as: Option<u32>,
    patience: Duration,
) -> Result<Beginning, ErrorAnswer> {
    match wanted {
        Wanted::From { file, offset } => {
            let rule = Rule::All { registered_as };
            let (at, kept) = at_place(log, &file, offset)?;
            Ok(Beginning { at, rule, kept })
        }
        Wanted::Without {
            have,
            file: Some((file, offset)),
        } => {
            let (at, kept) = at_place(log, &file, offset)?;
            let rule = Rule::Without(have);
            Ok(Beginning { at, rule, kept })
        }
        Wanted::Without { have, file: None } => {
            check_not_ahead(log, &have, patience).await?;
            let purged = || lacks_purged(&have, &log.purged());
            let file = log.begin_for(&have).ok_or_else(purged)?;
            let kept = log.keep(file).ok_or_else(purged)?;
            let offset = FIRST_EVENT;
            Ok(Beginning {
                at: Position { file, offset },
                rule: Rule::Without(have),
                kept,
            })
        }
    }
}

/// A consumer that has transactions of the ring which the ring does not have must not go on: it would have them alone.
/// Those that nobody in the ring has heard of (of another source) are its own affair, as with any source.
async fn check_not_ahead(
    log: &dyn CommittedLog,
    have: &GtidSet,
    patience: Duration,
) -> Result<(), ErrorAnswer> {
    if errant(have, &log.gtids()).is_empty() {
        return Ok(());
    }
    // This member may only be behind: a consumer that came from another one has seen more.
    log.catch_up(patience).await.map_err(|why| {
        let message = format!(
            "the replica has transactions that are not here yet, and whether the ring has them is not known: {why}; try again"
        );
        ErrorAnswer::new(code::UNKNOWN, message)
    })?;
    let errant = errant(have, &log.gtids());
    if errant.is_empty() {
        return Ok(());
    }
    Err(ErrorAnswer::fatal(format!(
        "Replica has more GTIDs than the ring has, of the ring's own sources: the ring never committed {}. Provision the \
         replica anew, or take its extra transactions back",
        shortened(&errant)
    )))
}

/// The GTIDs of `have` that are of a source in `log` and not in it.
fn errant(have: &GtidSet, log: &GtidSet) -> GtidSet {
    let mut errant = have.difference(log);
    let foreign: Vec<_> = errant
        .intervals()
        .filter(|(source, ..)| !log.parts().any(|(own, ..)| own == *source))
        .collect();
    for (source, tag, interval) in foreign {
        errant.remove_interval(source, tag, interval);
    }
    errant
}

fn lacks_purged(have: &GtidSet, purged: &GtidSet) -> ErrorAnswer {
    ErrorAnswer::fatal(format!(
        "Cannot replicate because the source purged required binary logs: {} are in no file of this member any more. \
         Provision the replica from a backup, or attach it to a member whose log is longer",
        shortened(&purged.difference(have))
    ))
}

fn at_place(
    log: &dyn CommittedLog,
    name: &str,
    offset: u64,
) -> Result<(Position, KeptFile), ErrorAnswer> {
    let files = log.files();
    let file = if name.is_empty() {
        files.first()
    } else {
        files.iter().find(|file| file.name == name)
    };
    let gone = |file: Option<FileNumber>| {
        let first = files.first().map_or("", |first| &first.name[..]);
        let what = match (file, log.number_of(name)) {
            (None, None) => "is not the name of one",
            _ => "was purged, or does not exist yet",
        };
        ErrorAnswer::fatal(format!(
            "Could not find log file '{name}' in this member's log: it {what}; the first one is '{first}'"
        ))
    };
    let file = file.ok_or_else(|| gone(None))?;
    if offset < FIRST_EVENT {
        let message = "Client requested source to start replication from position < 4";
        return Err(ErrorAnswer::fatal(message));
    }
    if offset > file.bytes {
        return Err(ErrorAnswer::fatal(format!(
            "Client requested source to start replication from position > file size: {} of {} bytes of {} are committed",
            offset, file.bytes, file.name
        )));
    }
    let kept = log
        .keep(file.number)
        .ok_or_else(|| gone(Some(file.number)))?;
    let file = file.number;
    Ok((Position { file, offset }, kept))
}

/// A set as it fits into a message.
fn shortened(set: &GtidSet) -> String {
    const LONGEST: usize = 200;
    let text = set.to_string().replace('\n', "");
    match text.char_indices().nth(LONGEST) {
        None => format!("'{text}'"),
        Some((end, _)) => format!("'{}…'", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RING: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const FOREIGN: &str = "aaaaaaaa-71ca-11e1-9e33-c80aa9429562";

    fn set(text: &str) -> GtidSet {
        text.parse().unwrap()
    }

    #[test]
    fn only_what_is_of_the_rings_own_sources_is_errant() {
        let log = set(&format!("{RING}:1-100"));
        let have = set(&format!("{RING}:1-50,{FOREIGN}:1-7"));
        assert!(errant(&have, &log).is_empty());
        let ahead = set(&format!("{RING}:1-50:101:blue:1,{FOREIGN}:1-7"));
        assert_eq!(errant(&ahead, &log), set(&format!("{RING}:101:blue:1")));
    }

    #[test]
    fn long_sets_are_shortened() {
        let gaps: Vec<String> = (1..500).map(|at| (2 * at).to_string()).collect();
        let long = shortened(&set(&format!("{RING}:{}", gaps.join(":"))));
        assert!(long.chars().count() < 210 && long.ends_with("…'"), "{long}");
        assert_eq!(shortened(&set(&format!("{RING}:1"))), format!("'{RING}:1'"));
    }
}
