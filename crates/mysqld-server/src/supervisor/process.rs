//! Processes of the system: which process uses a data directory, whether it lives, and signals. The command line identifies a process, so
//! that a reused process id is never signalled.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open, test_kill_process,
};
use tokio::net::unix::pipe;

use crate::supervisor::command_line::INITIALISE;
use crate::supervisor::decision::{Found, ProcessId};

const PROC: &str = "/proc";
/// A wrapper and its options precede mysqld with at most this many words of the command line.
const MOST_WRAPPING: usize = 5;

/// What identifies a process that uses a data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// An argument in the process's command line.
    pub(super) argument: String,
    /// Alternatively, the working directory of a mysqld, which is its data directory. If the working directory is unreadable, the pid file
    /// identifies the process.
    pub(super) works_in: Option<PathBuf>,
    pub(super) pid_file: PathBuf,
}

impl Mark {
    fn fits(&self, process: &Process) -> bool {
        process.has(&self.argument)
            || self.works_in.as_ref().is_some_and(|data_dir| {
                process.is_mysqld()
                    && match process.works_in() {
                        Some(found) => found == *data_dir,
                        None => pid_in(&self.pid_file) == Some(process.id),
                    }
            })
    }
}

/// Finds the process that uses the data directory.
pub(super) fn find(mark: &Mark) -> Found {
    let candidates: Vec<Process> = all().filter(|process| mark.fits(process)).collect();
    if candidates.is_empty() && !Path::new(PROC).join("self").exists() {
        // Without `/proc`, only the pid file is available.
        return match pid_in(&mark.pid_file) {
            Some(id) if lives(id) => Found::Unknown(id),
            _ => Found::Nothing,
        };
    }
    // A wrapper has the same arguments as its program. The innermost process is the server.
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

fn pid_in(pid_file: &Path) -> Option<ProcessId> {
    pid_of(&fs::read_to_string(pid_file).ok()?)
}

/// Parses the process id in a pid file. Refuses negative numbers, which would signal a process group or all processes.
pub(crate) fn pid_of(text: &str) -> Option<ProcessId> {
    let number = text.trim().parse().ok();
    number.filter(|number| *number > 0).map(ProcessId)
}

/// True if a process that used the data directory still does. An ending process does until its last thread ends. It has already lost its
/// command line, perhaps in the middle of a read, but still has its files and the locks on them.
pub(super) fn serves(id: ProcessId, mark: &Mark) -> bool {
    if !Path::new(PROC).join("self").exists() {
        return lives(id);
    }
    Process::read(id).is_some_and(|process| mark.fits(&process))
        || stat_of(id).is_some_and(|stat| is_ending_in(&stat))
}

fn stat_of(id: ProcessId) -> Option<String> {
    fs::read_to_string(format!("{PROC}/{}/stat", id.0)).ok()
}

/// Waits until a process has ended, whatever its parent; indefinitely if the system does not report that. The wait uses a pidfd, which
/// becomes readable at that moment.
pub(super) async fn ended(id: ProcessId) {
    let pid = Pid::from_raw(id.0).ok_or(Errno::INVAL);
    let process = match pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        Err(Errno::SRCH) => return,
        opened => opened.map_err(io::Error::from),
    };
    match process.and_then(pipe::Receiver::from_owned_fd_unchecked) {
        Ok(process) if process.readable().await.is_ok() => {}
        _ => std::future::pending().await,
    }
}

fn lives(id: ProcessId) -> bool {
    Pid::from_raw(id.0).is_some_and(|pid| test_kill_process(pid).is_ok())
}

/// A process and its start time, in kernel ticks: process ids are reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The process id.
    pub id: ProcessId,
    /// The start time; `None` if the system does not report it.
    pub began: Option<u64>,
}

impl Identity {
    /// Returns the identity of a living process.
    pub fn of(id: ProcessId) -> Self {
        let began = id.started();
        Self { id, began }
    }
}

/// Returns the process that uses the data directory: this process, or a child if this process is a wrapper.
pub(super) fn innermost(mut id: ProcessId, mark: &Mark) -> ProcessId {
    let child_of = |id: ProcessId| {
        let children = format!("{PROC}/{0}/task/{0}/children", id.0);
        let children = fs::read_to_string(children).ok()?;
        let ids = children.split_whitespace().filter_map(pid_of);
        let serves = |id: &ProcessId| Process::read(*id).is_some_and(|child| mark.fits(&child));
        let mut serving = ids.filter(serves);
        serving.next()
    };
    while let Some(child) = child_of(id) {
        id = child;
    }
    id
}

/// Kills all processes that use the data directory, including wrappers.
pub(super) fn kill_all(mark: &Mark) -> io::Result<()> {
    for process in all().filter(|process| mark.fits(process)) {
        match kill(process.id) {
            Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
            killed => killed?,
        }
    }
    Ok(())
}

/// Kills a process that leads a group, together with the group.
pub(super) fn kill_group(leader: ProcessId) -> io::Result<()> {
    let pid = Pid::from_raw(leader.0).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process_group(pid, Signal::KILL)?)
}

/// Sends SIGTERM to a process.
pub(super) fn ask(id: ProcessId) -> io::Result<()> {
    signal(id, Signal::TERM)
}

pub(super) fn kill(id: ProcessId) -> io::Result<()> {
    signal(id, Signal::KILL)
}

fn signal(id: ProcessId, signal: Signal) -> io::Result<()> {
    let pid = Pid::from_raw(id.0).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, signal)?)
}

impl ProcessId {
    /// When the process started, in clock ticks since boot. Process ids are reused, so only both numbers together identify a process.
    pub fn started(self) -> Option<u64> {
        started_in(&stat_of(self)?)
    }
}

fn started_in(stat: &str) -> Option<u64> {
    field(stat, 19)?.parse().ok()
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
    /// Reads a living process. A zombie no longer has arguments.
    fn read(id: ProcessId) -> Option<Self> {
        let arguments = fs::read(format!("{PROC}/{}/cmdline", id.0)).ok()?;
        (!arguments.is_empty()).then(|| Self {
            id,
            parent: stat_of(id).and_then(|stat| parent_of(&stat)),
            arguments,
        })
    }

    /// The process's working directory, if readable.
    fn works_in(&self) -> Option<PathBuf> {
        fs::read_link(format!("{PROC}/{}/cwd", self.id.0)).ok()
    }

    /// A system wrapper may precede mysqld on the command line.
    fn is_mysqld(&self) -> bool {
        let names = self.arguments.split(|byte| *byte == 0).map(|word| {
            let start = word.iter().rposition(|byte| *byte == b'/');
            &word[start.map_or(0, |start| start + 1)..]
        });
        let mut names = names.take(MOST_WRAPPING);
        names.any(|name| name == b"mysqld" || name == b"mysqld-debug")
    }

    fn has(&self, argument: &str) -> bool {
        self.arguments
            .split(|byte| *byte == 0)
            .any(|found| found == argument.as_bytes())
    }
}

/// Returns a field of a `stat` file. Fields are counted after the program's name, which is in parentheses and may contain anything.
fn field(stat: &str, number: usize) -> Option<&str> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(number)
}

pub(crate) fn parent_of(stat: &str) -> Option<ProcessId> {
    field(stat, 1)?.parse().ok().map(ProcessId)
}

/// True if a process is ending, by the kernel's flag `PF_EXITING`, and has not ended: its first thread has not ended, or another thread
/// exists. The list of its threads is not reliable, since a read of the list may stop early while threads end.
pub(crate) fn is_ending_in(stat: &str) -> bool {
    const EXITING: u32 = 0x4;
    let number = |place| field(stat, place)?.parse::<u32>().ok();
    let (Some(flags), Some(threads)) = (number(6), number(17)) else {
        return false;
    };
    let first_has_ended = matches!(field(stat, 0), Some("Z" | "X"));
    flags & EXITING != 0 && !(first_has_ended && threads <= 1)
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
    fn the_start_time_is_read_past_odd_names() {
        let stat = "7 (my) sql) d) S 1 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 40 0 81234 0";
        assert_eq!(started_in(stat), Some(81_234));
        assert_eq!(started_in("nonsense"), None);
        let own = ProcessId(i32::try_from(std::process::id()).unwrap());
        assert!(own.started().is_some() && ProcessId(i32::MAX).started().is_none());
    }

    #[test]
    fn a_pid_file_names_one_process_or_none() {
        assert_eq!(pid_of("42\n"), Some(ProcessId(42)));
        for none in ["", "0", "-1", "-42", "4294967295", "x"] {
            assert_eq!(pid_of(none), None, "{none}");
        }
    }

    #[test]
    fn a_process_that_is_ending_is_told_from_a_zombie_and_from_what_lives() {
        let is_ending = |state: &str, flags: u32, threads: u32| {
            is_ending_in(&format!(
                "7 (my) sqld) {state} 1 7 7 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 {threads} 0"
            ))
        };
        let (exiting, not) = (4_194_316, 4_194_304);
        assert!(is_ending("D", exiting, 1), "it closes its files");
        assert!(is_ending("Z", exiting, 3), "others close them");
        assert!(!is_ending("Z", exiting, 1) && !is_ending("X", exiting, 0));
        assert!(!is_ending("S", not, 40));
        assert!(!is_ending_in("7 (mysqld) Z 1 7"));
    }

    /// Kills a process with many threads and much memory repeatedly. It must count as using the data directory while one of its threads
    /// lives.
    #[test]
    fn a_process_that_is_killed_serves_until_its_last_thread_has_ended() {
        let program = std::env::current_exe().unwrap();
        for _ in 0..20 {
            let mut child = std::process::Command::new(&program)
                .args([
                    "--exact",
                    "supervisor::process::tests::many_threads",
                    "--ignored",
                ])
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let id = ProcessId(i32::try_from(child.id()).unwrap());
            let mark = Mark {
                argument: "supervisor::process::tests::many_threads".to_owned(),
                works_in: None,
                pid_file: "/no/such/pid".into(),
            };
            let tasks = || {
                let tasks = fs::read_dir(format!("/proc/{}/task", id.0)).into_iter();
                let stats = tasks
                    .flatten()
                    .flatten()
                    .filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
                let ended = |stat: &String| matches!(field(stat, 0), Some("Z" | "X"));
                stats.filter(|stat| !ended(stat)).count()
            };
            while tasks() < 50 {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            assert!(serves(id, &mark));
            kill(id).unwrap();
            while serves(id, &mark) {}
            assert_eq!(tasks(), 0, "taken for gone with threads that live");
            child.wait().unwrap();
        }
    }

    #[test]
    #[ignore = "what the test above kills"]
    fn many_threads() {
        for _ in 0..64 {
            std::thread::spawn(|| {
                let memory = vec![1_u8; 1 << 20];
                std::thread::sleep(std::time::Duration::from_secs(60));
                drop(memory);
            });
        }
        std::thread::sleep(std::time::Duration::from_secs(60));
    }

    #[test]
    fn a_dead_process_serves_nothing() {
        let mark = Mark {
            argument: "--datadir=/no/such/directory".to_owned(),
            works_in: Some("/no/such/directory".into()),
            pid_file: "/no/such/pid".into(),
        };
        assert!(!serves(ProcessId(i32::MAX), &mark));
        assert_eq!(find(&mark), Found::Nothing);
    }
}
