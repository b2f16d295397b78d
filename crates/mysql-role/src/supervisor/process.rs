//! Processes as the system shows them: which one serves a data directory, whether one lives, and
//! signals to it. A process is known by its command line, so that a number that the system has given
//! to somebody else is never signalled.

use std::fs;
use std::io;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::supervisor::command_line::INITIALISE;
use crate::supervisor::decision::{Found, ProcessId};

const PROC: &str = "/proc";

/// Looks for what serves the data directory, of which `data_dir_argument` is in the command line.
pub(super) fn find(data_dir_argument: &str, pid_file: &Path) -> Found {
    let candidates: Vec<Process> = all()
        .filter(|process| process.has(data_dir_argument))
        .collect();
    if candidates.is_empty() && !Path::new(PROC).join("self").exists() {
        return find_by_pid_file(pid_file);
    }
    // A wrapper has the same arguments as what it wraps: the innermost one is the server.
    let is_parent = |process: &Process| {
        candidates
            .iter()
            .any(|other| other.parent == Some(process.id))
    };
    match candidates.iter().find(|process| !is_parent(process)) {
        None => Found::Nothing,
        Some(process) if process.has(INITIALISE) => Found::Initialiser(process.id),
        Some(process) => Found::Unknown(process.id),
    }
}

/// Where the system has no process files, the pid file is all there is.
fn find_by_pid_file(pid_file: &Path) -> Found {
    let pid = fs::read_to_string(pid_file)
        .ok()
        .and_then(|text| text.trim().parse::<i32>().ok());
    match pid.map(ProcessId) {
        Some(id) if lives(id) => Found::Unknown(id),
        _ => Found::Nothing,
    }
}

/// Whether a process still serves the data directory.
pub(super) fn serves(id: ProcessId, data_dir_argument: &str) -> bool {
    match Process::read(id) {
        Some(process) => process.has(data_dir_argument),
        None => !Path::new(PROC).join("self").exists() && lives(id),
    }
}

fn lives(id: ProcessId) -> bool {
    Pid::from_raw(id.0).is_some_and(|pid| test_kill_process(pid).is_ok())
}

/// Asks a process to end.
pub(super) fn ask(id: ProcessId) -> io::Result<()> {
    signal(id, Signal::TERM)
}

/// Ends a process.
pub(super) fn kill(id: ProcessId) -> io::Result<()> {
    signal(id, Signal::KILL)
}

fn signal(id: ProcessId, signal: Signal) -> io::Result<()> {
    let pid = Pid::from_raw(id.0).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, signal)?)
}

struct Process {
    id: ProcessId,
    parent: Option<ProcessId>,
    arguments: Vec<u8>,
}

fn all() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir(PROC).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok().map(ProcessId)?;
        Process::read(id)
    })
}

impl Process {
    /// A process that lives; a zombie has no arguments any more.
    fn read(id: ProcessId) -> Option<Self> {
        let folder = Path::new(PROC).join(id.0.to_string());
        let arguments = fs::read(folder.join("cmdline"))
            .ok()
            .filter(|bytes| !bytes.is_empty())?;
        let parent = fs::read_to_string(folder.join("stat"))
            .ok()
            .and_then(|stat| parent_of(&stat));
        Some(Self {
            id,
            parent,
            arguments,
        })
    }

    fn has(&self, argument: &str) -> bool {
        self.arguments
            .split(|byte| *byte == 0)
            .any(|found| found == argument.as_bytes())
    }
}

/// The parent in a `stat` file: the second field behind the program's name, which is in parentheses
/// and may hold anything.
fn parent_of(stat: &str) -> Option<ProcessId> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
        .map(ProcessId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_read_past_odd_names() {
        assert_eq!(parent_of("7 (my) sql) d) S 42 7 7 0"), Some(ProcessId(42)));
        assert_eq!(parent_of("nonsense"), None);
    }

    #[test]
    fn a_dead_process_serves_nothing() {
        assert!(!serves(ProcessId(i32::MAX), "--datadir=/x"));
        assert_eq!(
            find("--datadir=/no/such/directory", Path::new("/no/such/pid")),
            Found::Nothing
        );
    }
}
