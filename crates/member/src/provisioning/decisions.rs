//! The decisions of a provisioning, as pure functions. They decide how to continue an interrupted attempt, why a copy is refused, and which
//! transactions it would lose.

use std::io;
use std::path::Path;

use binlog_format::gtid::GtidSet;
use mysqld_controller::status::{Hold, WriteFenceState};
use mysqld_server::BinlogPlace;
use mysqld_server::provision::{CloneOffer, CopyState, NoteStep, ProvisionNote};
use mysqld_server::tail_trim::{ErrantFile, ErrantFiles, TrimmedTail, errant_files};
use thiserror::Error;

use crate::protocol::{KeptBinlog, Refusal};
use crate::status::MysqlView;

pub(super) const AGAIN: &str = "run the command again: `witness reprovision --from`";

/// How an attempt continues, if no command works on it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The role stays on hold.
    Hold(Hold),
    /// The copy is complete.
    Complete,
    /// Nothing was removed, so the attempt is forgotten. The role then compares GTIDs, as it always does.
    Discard,
}

/// Decides from the note, and from the state of the copy if one was begun. `is_started` is true if this member starts mysqld.
pub(super) fn next(note: &ProvisionNote, copy: Option<CopyState>, is_started: bool) -> Next {
    let donor = &note.donor;
    let what = match (&note.step, copy) {
        (NoteStep::Needed { why }, _) => {
            return Next::Hold(Hold::Interrupted { cause: why.clone() });
        }
        // The donor may never return, and the client of the command may not either.
        (NoteStep::Starting, _) => return Next::Discard,
        (NoteStep::Copied, _) | (_, Some(CopyState::There)) => return Next::Complete,
        (_, Some(CopyState::Not { error, .. })) => {
            return Next::Hold(interrupted(donor, error.as_deref()));
        }
        (_, Some(CopyState::UnderWay { .. })) => format!("the data of `{donor}` are being copied"),
        (_, Some(CopyState::Ending | CopyState::Down(_)) | None) => wait_words(donor, is_started),
    };
    Next::Hold(Hold::Working { what })
}

/// Returns the hold of the role when the member starts, before its mysqld is checked.
pub(crate) fn hold_at_start(member_dir: &Path) -> Option<Hold> {
    let note = match ProvisionNote::load(member_dir) {
        Ok(note) => note?,
        Err(error) => return Some(unreadable(&error)),
    };
    Some(match note.step {
        NoteStep::Needed { why } => Hold::Interrupted { cause: why },
        _ => Hold::Working {
            what: format!(
                "the progress of the copy of `{}`'s data has to be checked",
                note.donor
            ),
        },
    })
}

pub(super) fn unreadable(error: &io::Error) -> Hold {
    let cause = format!("whether mysqld's data are being replaced cannot be read: {error}");
    Hold::Interrupted { cause }
}

pub(super) fn interrupted(donor: &str, why: Option<&str>) -> Hold {
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    Hold::Interrupted {
        cause: format!(
            "the copy of the data of `{donor}` was interrupted{why}, and mysqld may have lost all of its data; {AGAIN}"
        ),
    }
}

pub(super) fn wait_words(donor: &str, is_started: bool) -> String {
    let what = format!("mysqld has to come back with its copy of the data of `{donor}`");
    match is_started {
        true => what,
        false => format!("{what}: start it, if nothing else does"),
    }
}

/// Checks that a running mysqld is closed for writes.
///
/// # Errors
/// If it may be open.
pub(super) fn is_closed(fence: &WriteFenceState) -> Result<(), Refusal> {
    match fence {
        WriteFenceState::Open | WriteFenceState::Opening | WriteFenceState::NotClosed { .. } => {
            Err(Refusal::refused(
                "clients can write to this member's mysqld, or commits wait in it",
                "check with `witness status`, and try again when it is closed",
            ))
        }
        WriteFenceState::Closed { .. }
        | WriteFenceState::NotOpened { .. }
        | WriteFenceState::Unmanaged
        | WriteFenceState::Unknown => Ok(()),
    }
}

/// Checks that the mysqld `theirs` of the member `name` can be copied to the mysqld `own` now.
///
/// # Errors
/// If it cannot, with the reason.
pub(crate) fn fit(
    name: &str,
    theirs: Option<&MysqlView>,
    own: Option<&MysqlView>,
) -> Result<(), Refusal> {
    let Some(theirs) = theirs else {
        return Err(no_donor(format!("the mysqld of `{name}` is not reported")));
    };
    if !theirs.following && !theirs.writable {
        let role = &theirs.role;
        let what = format!("the mysqld of `{name}` is no source of a copy: {role}");
        return Err(no_donor(what));
    }
    let ours = own.and_then(|own| own.version.as_ref());
    match (ours, &theirs.version) {
        (Some(ours), Some(theirs)) if series(ours) != series(theirs) => Err(no_donor(format!(
            "the mysqld of `{name}` is a {theirs}, and this one a {ours}; MySQL copies between servers of one series only"
        ))),
        _ => Ok(()),
    }
}

/// Returns the series of a version: `9.7` for `9.7.4`.
fn series(version: &str) -> &str {
    let second_dot = version.match_indices('.').nth(1);
    second_dot.map_or(version, |(at, _)| &version[..at])
}

pub(super) fn no_donor(what: String) -> Refusal {
    let advice =
        "nothing was changed; name another donor with --from, or check with `witness status`";
    Refusal::refused(what, advice)
}

/// Checks that this member can use its mysqld with the accounts in the donor's data. `user` is this member's account.
///
/// # Errors
/// If it cannot, with advice.
pub(super) fn accounts_fit(
    offer: &CloneOffer,
    donor: &str,
    user: &str,
    applies_rows: bool,
) -> Result<(), Refusal> {
    let theirs = &offer.member_account;
    if theirs != user {
        return Err(Refusal::refused(
            format!(
                "the account of `{donor}` is `{theirs}`, and `{user}` here: after the copy, which brings its accounts, this member could not \
                 log in"
            ),
            "give all members the same mysql.user and password",
        ));
    }
    let lacks = offer.lacks_for_rows();
    if !applies_rows || lacks.is_empty() {
        return Ok(());
    }
    Err(Refusal::refused(
        format!(
            "the account `{theirs}` of `{donor}` lacks {}, which this member's applier needs: the copy brings that account, and would not \
             follow",
            lacks.join(", ")
        ),
        format!(
            "at the mysqld of `{donor}`: SET sql_log_bin = 0; GRANT ALL PRIVILEGES ON *.* TO the account WITH GRANT OPTION, with \
             super_read_only off meanwhile; or name another donor with --from"
        ),
    ))
}

/// The files that were kept before data is replaced.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) files: Vec<KeptBinlog>,
    /// What could not be kept in a forced command, and why.
    pub(super) not_kept: Option<String>,
}

/// Returns the server's binlog files with errant transactions.
pub(super) fn files_with(
    place: Option<&BinlogPlace>,
    executed: &GtidSet,
    errant: &GtidSet,
) -> io::Result<ErrantFiles> {
    match place {
        // If there are no errant transactions, no file needs to be readable.
        _ if errant.is_empty() => Ok(ErrantFiles::default()),
        Some(place) => errant_files(place, executed, errant),
        None => Ok(ErrantFiles::without_a_binlog(errant)),
    }
}

/// Why not all errant transactions can be kept.
#[derive(Debug, Error)]
pub(super) enum NotKept {
    #[error("the binlog files with errant transactions cannot be kept: {0}")]
    Files(#[from] io::Error),
    #[error(
        "{} errant transactions are in no binlog file, so that nothing can be kept of them: {}",
        .0.count(),
        .0.to_string().replace('\n', "")
    )]
    InNoFile(GtidSet),
}

/// Returns the files with errant transactions. If not all of these transactions can be kept, also returns the reason.
pub(super) fn not_all(files: io::Result<ErrantFiles>) -> (Vec<ErrantFile>, Option<NotKept>) {
    match files {
        Err(error) => (Vec::new(), Some(error.into())),
        Ok(found) if found.in_no_file.is_empty() => (found.files, None),
        Ok(found) => (found.files, Some(NotKept::InNoFile(found.in_no_file))),
    }
}

/// Keeps each file with the function `keep`. In a forced command, keeps as many files as possible, and returns why the others cannot be
/// kept.
pub(super) fn keep(
    found: io::Result<ErrantFiles>,
    force: bool,
    keep: impl Fn(&ErrantFile) -> io::Result<TrimmedTail>,
) -> Result<Kept, NotKept> {
    let (found, mut not_kept) = not_all(found);
    let mut files = Vec::new();
    for file in found {
        if not_kept.is_some() && !force {
            break;
        }
        match keep(&file) {
            Ok(tail) => files.push(KeptBinlog {
                from: tail.from.display().to_string(),
                gtids: tail.gtids,
                kept_as: tail.kept_as,
            }),
            Err(error) => not_kept = Some(error.into()),
        }
    }
    match not_kept {
        Some(why) if !force => Err(why),
        not_kept => Ok(Kept {
            files,
            not_kept: not_kept.map(|why| why.to_string()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use mysqld_server::provision::CloneAccount;
    use raft_types::MemberId;

    use super::*;

    fn set(text: &str) -> GtidSet {
        format!("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:{text}")
            .parse()
            .unwrap()
    }

    #[test]
    fn an_attempt_without_a_command_goes_on_or_waits() {
        let note = |step| ProvisionNote {
            donor: "db-2".to_owned(),
            step,
        };
        let account = CloneAccount::random(MemberId(1));
        let copying = note(NoteStep::Copying { account });
        let not = |error: Option<&str>| CopyState::Not {
            begun: true,
            error: error.map(str::to_owned),
        };
        assert_eq!(next(&note(NoteStep::Starting), None, true), Next::Discard);
        assert_eq!(next(&note(NoteStep::Copied), None, true), Next::Complete);
        let there = Some(CopyState::There);
        assert_eq!(next(&copying, there, true), Next::Complete);
        let lost = Next::Hold(interrupted("db-2", Some("killed")));
        assert_eq!(next(&copying, Some(not(Some("killed"))), true), lost);
        for is_started in [true, false] {
            let what = wait_words("db-2", is_started);
            let waits = Next::Hold(Hold::Working { what });
            assert_eq!(next(&copying, Some(CopyState::Ending), is_started), waits);
        }
    }

    #[test]
    fn a_version_has_a_series() {
        assert_eq!(series("9.7.4"), "9.7");
        assert_eq!(series("8.4.10"), "8.4");
    }

    /// A follower has three errant transactions, which are in no binlog file.
    #[test]
    fn incomplete_copies_of_errant_transactions_need_force() {
        let (errant, executed) = (set("7-9"), set("1-9"));
        let found = || files_with(None, &executed, &errant);
        let asked = Cell::new(0);
        let never = |_: &ErrantFile| {
            asked.set(asked.get() + 1);
            Err(io::ErrorKind::StorageFull.into())
        };
        let why = keep(found(), false, never).unwrap_err();
        assert!(
            matches!(&why, NotKept::InNoFile(lost) if *lost == errant),
            "{why}"
        );
        // The dry run reports the same reason.
        let dry = not_all(found()).1.map(|why| why.to_string());
        assert_eq!(dry, Some(why.to_string()));
        let kept = keep(found(), true, never).unwrap();
        assert!(kept.files.is_empty());
        assert_eq!(kept.not_kept, Some(why.to_string()));
        assert_eq!(asked.get(), 0, "there is no file");
    }

    #[test]
    fn unreadable_files_do_not_matter_without_errant_transactions() {
        let broken = BinlogPlace::of_index("/nowhere".into(), Path::new("."));
        let executed = set("1-9");
        let found = |errant| files_with(Some(&broken), &executed, &errant);
        let never = |_: &ErrantFile| Err(io::ErrorKind::StorageFull.into());
        assert!(
            keep(found(GtidSet::new()), false, never)
                .unwrap()
                .files
                .is_empty()
        );
    }
}
