//! `witness run`: runs one member until it is stopped or fails. `witness guard`: the process that a database member starts to guard its
//! mysqld.

use std::env;
use std::future::ready;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex};

use member::protocol::OperatorCommand;
use member::{
    Commands, GUARD, GUARDS, GuardCommand, IdentityFileError, LockError, MemberError, Opened,
    RELOAD, Surroundings, connect_options, guarded_server,
};
use mysql_link::Secret;
use mysqld_controller::read_fence::{GuardOptions, Word, guard as guard_readers};
use raft_types::MemberKind;
use ring_admin::IdentityError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::cli::config_args::ConfigArgs;
use crate::cli::process::{ServiceManager, StopSignals, log_panics, start_log};
use crate::cli::session::block_on;
use crate::config::FileCheck;
use crate::http::{Histograms, serve_member};
use crate::reload::Reloading;
use crate::terminal::{Attempt, Exit, Failure};

/// Arguments of `witness run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Create the ring from all configured members; use this on one of them, once in the ring's life
    #[arg(long)]
    bootstrap: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs `witness run`.
///
/// # Errors
/// Exit 2 for a wrong configuration, 4 for a data directory that is in use or belongs to another member, 7 for a damaged log, 1 for
/// everything else.
pub(crate) fn run(args: &RunArgs) -> Attempt {
    let (config, problems) = args.config.load(FileCheck::Usable)?;
    if config.member.own.kind == MemberKind::Witness && args.config.can_be_read_again() {
        start_again_keeping_no_freed_memory();
    }
    let log = start_log(&config.logging)?;
    log_panics();
    for problem in problems.iter() {
        tracing::warn!("{problem}");
    }
    raise_descriptor_limit();
    let manager = ServiceManager::of_environment()?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if config.member.own.kind == MemberKind::Witness {
        // A witness only writes entries to its disk and acknowledges them, so two threads are enough. More threads would only take memory:
        // each thread has its own stack and memory pool.
        let cores = std::thread::available_parallelism();
        runtime.worker_threads(cores.map_or(1, |cores| cores.get().min(2)));
    }
    let runtime = runtime.enable_all().build()?;
    runtime.block_on(async {
        let mut stop = StopSignals::new()?;
        // After this call, a SIGHUP no longer ends the process.
        let hangups = signal(SignalKind::hangup())?;
        let histograms = Histograms::default();
        let observer = Arc::new(histograms.clone());
        let with = Surroundings {
            flushes: Some(observer.clone()),
            commits: Some(observer.clone()),
            takeovers: Some(observer),
            guard: guard_command(args),
            runtime_dir: manager.runtime_dir(),
        };
        let opened = Opened::open(config.member.clone(), with).await;
        let opened = opened.map_err(|error| failure(&error))?;
        let served = serve_member(&config, &opened, &histograms).await;
        let commands = opened.commands();
        commands.reload_by(Arc::new(Reloading {
            args: args.config.clone(),
            started_with: config.clone(),
            member: Box::new(opened.renewal()),
            http: served.map_err(|error| failure(&error))?,
            log,
            turn: Mutex::default(),
        }));
        tracing::info!(
            member = %config.member.own.id,
            name = config.member.own.name,
            ring = config.member.ring_name,
            listen = config.member.listen,
            data_dir = %config.member.data_dir.display(),
            "started"
        );
        // The process is ready when it answers the other members. It may have to wait for them before it takes part in the ring.
        manager.notify("READY=1");
        let view = opened.view();
        tokio::select! {
            ended = live(opened, args.bootstrap, &mut stop, &manager) => ended,
            never = manager.keep_alive(view) => match never {},
            never = reload_on(hangups, commands) => match never {},
        }
    })
}

/// Re-executes this program in the same process with `MIMALLOC_PURGE_DELAY=0`, so that the allocator returns freed memory immediately
/// (decision 99). If the environment already sets this variable, nothing is done. The allocator reads the variable before `main`; to set
/// the delay later, `unsafe` calls would be needed. If the re-execution fails, the process continues, and uses more memory.
fn start_again_keeping_no_freed_memory() {
    const KEPT_FOR_MS: &str = "MIMALLOC_PURGE_DELAY";
    if env::var_os(KEPT_FOR_MS).is_some() {
        return;
    }
    let Ok(program) = env::current_exe() else {
        return;
    };
    let mut arguments = env::args_os();
    let mut again = Command::new(program);
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    // `exec` returns only if it fails.
    let _ = again.args(arguments).env(KEPT_FOR_MS, "0").exec();
}

/// Reloads the configuration on each SIGHUP. The member logs the result, as for every order.
async fn reload_on(mut hangups: Signal, commands: Commands) -> std::convert::Infallible {
    loop {
        match hangups.recv().await {
            Some(()) => drop(commands.carry_out("SIGHUP", OperatorCommand::Reload).await),
            None => std::future::pending().await,
        }
    }
}

/// Returns the command that starts the guard of a database member.
fn guard_command(args: &RunArgs) -> Option<GuardCommand> {
    match env::current_exe() {
        Ok(program) => Some(GuardCommand {
            program,
            arguments: args.config.arguments(GUARD),
        }),
        Err(error) => {
            tracing::warn!(%error, "the path of this program is not known, so no guard is started");
            None
        }
    }
}

/// Joins the ring and runs the member, until it fails or a signal stops it.
async fn live(
    mut opened: Opened,
    bootstrap: bool,
    stop: &mut StopSignals,
    manager: &ServiceManager,
) -> Attempt {
    let joined = tokio::select! {
        joined = opened.join(bootstrap) => joined.map(Some),
        name = stop.next() => {
            tracing::info!("{name}: stopping before the ring was joined");
            Ok(None)
        }
    };
    let joined = match joined {
        Ok(Some(joined)) => joined,
        ended => return end(ended.map(drop), opened.close(), stop, manager).await,
    };
    let taken = tokio::select! {
        taken = opened.take_part(joined) => taken.map(Some),
        // `take_part` may wait for a disk, but not for other members. It can be abandoned here: no task acts on mysqld yet, and the next
        // start accepts an unclosed log.
        name = stop.next() => {
            tracing::info!("{name}: stopping before the member took part");
            Ok(None)
        }
    };
    let running = match taken {
        Ok(Some(running)) => running,
        ended => return end(ended.map(drop), ready(Ok(())), stop, manager).await,
    };
    tokio::select! {
        error = running.failed() => end(Err(error), running.end_failed(), stop, manager).await,
        name = stop.next() => {
            tracing::info!("{name}: stopping");
            end(Ok(()), running.stop(), stop, manager).await
        }
    }
}

/// Waits until the member has stopped, and returns its error, if it failed.
async fn end(
    ended: Result<(), MemberError>,
    stopping: impl Future<Output = Result<(), MemberError>>,
    stop: &mut StopSignals,
    manager: &ServiceManager,
) -> Attempt {
    if let Err(error) = &ended {
        tracing::error!("stopping: {error}");
    }
    manager.notify("STOPPING=1");
    let stopped = tokio::select! {
        stopped = stopping => stopped,
        // The second signal requests an immediate end.
        name = stop.next() => {
            tracing::warn!("{name} again: stopping immediately");
            Ok(())
        }
    };
    ended.and(stopped).map_err(|error| failure(&error))?;
    tracing::info!("stopped");
    Ok(())
}

/// Returns the advice for a damaged log. A closed file has the same bytes on every member, so another member's file can replace it; a start
/// checks that the replacement fits the files before and after it. The newest file may contain entries that only this member has
/// acknowledged.
fn damage_advice(error: &binlog_store::OpenError) -> &'static str {
    let newer = match error {
        binlog_store::OpenError::AllMissing { .. }
        | binlog_store::OpenError::LogMissing { .. }
        | binlog_store::OpenError::MetaMissing { .. } => {
            return "first check that its volume is mounted, and see the runbook lost-member";
        }
        binlog_store::OpenError::Corrupt(path, corruption) => {
            let next = path.with_file_name(corruption.file.next().name());
            next.exists()
        }
        _ => false,
    };
    match newer {
        true => {
            "this file is closed, so it is the same on every member: move it away, put another member's file of that \
             name in its place, and start again; `witness log verify DATA_DIR` names every damaged place"
        }
        false => OWN_STATE,
    }
}

/// Advice for damaged state that only this member has.
const OWN_STATE: &str = "only a copy that was made while this member was stopped, and that has not run since, may replace \
     the newest file, the index or `meta`: otherwise remove the member (`witness members remove`), and add it \
     again under a new number with an empty data directory, which gets the log of the others; `witness log verify DATA_DIR` names every damaged place";

/// Returns true for an error that a full disk or an exceeded quota has caused.
fn wants_room(error: &MemberError) -> bool {
    let first: &(dyn std::error::Error + 'static) = error;
    let mut causes = std::iter::successors(Some(first), |error| error.source());
    causes.any(|cause| {
        let kind = cause.downcast_ref().map(io::Error::kind);
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        kind.is_some_and(|kind| full.contains(&kind))
    })
}

/// Returns the exit code and the advice for a member's error.
pub(crate) fn failure(error: &MemberError) -> Failure {
    let (exit, advice) = match error {
        full if wants_room(full) => (
            Exit::Error,
            "free space on the disk of `data_dir`, and start this member again: it has what it had before",
        ),
        MemberError::Lock(LockError::InUse { .. }) => (
            Exit::Refused,
            "stop that process first, or name another `data_dir`",
        ),
        MemberError::Lock(LockError::NotOurs { .. }) => (
            Exit::Refused,
            "`chown -R` the data directory to the user that the member runs as",
        ),
        MemberError::IdentityFile(IdentityFileError::Foreign { .. }) => (
            Exit::Refused,
            "name the right `data_dir`, or give this member an empty one; a member that lost its data must return under a new number",
        ),
        MemberError::IdentityFile(IdentityFileError::Format { .. })
        | MemberError::Start(consensus::StartError::Format(_))
        | MemberError::Identity(
            IdentityError::OtherRing { .. } | IdentityError::Bootstrapping { .. },
        )
        | MemberError::RingBootstrap(_)
        | MemberError::Bootstrap(_)
        | MemberError::Open(binlog_store::OpenError::ForeignRing { .. }) => (Exit::Refused, ""),
        MemberError::IdentityFile(
            IdentityFileError::Damaged { .. } | IdentityFileError::Missing { .. },
        ) => (
            Exit::Corrupt,
            "restore the data directory from a copy made while the member was stopped, or replace the member",
        ),
        MemberError::Open(open) if open.is_corruption() => (Exit::Corrupt, damage_advice(open)),
        MemberError::Open(binlog_store::OpenError::Io { .. }) => (
            Exit::Error,
            "check the machine's disk. Every file of the log but the newest is the same on every member: if one of them is unreadable, \
             move it away, put another member's file of that name in its place, and start again",
        ),
        MemberError::Store(binlog_store::StoreError::Corrupt(_)) => (
            Exit::Corrupt,
            "start this member again: it says what may take the damaged file's place",
        ),
        MemberError::Tls(_) | MemberError::Start(consensus::StartError::Config(_)) => {
            (Exit::Usage, "")
        }
        MemberError::Listen { .. } => (
            Exit::Error,
            "stop what listens there, or configure another address",
        ),
        MemberError::Meta { source, .. } => match source.kind() {
            io::ErrorKind::ResourceBusy => (Exit::Refused, "stop that process first"),
            io::ErrorKind::InvalidData => (Exit::Corrupt, OWN_STATE),
            _ => (Exit::Error, ""),
        },
        _ => (Exit::Error, ""),
    };
    exit.because(error, advice)
}

/// Raises the limit of file descriptors to 65,536, the limit of the package's service, as far as the system allows. The usual limit of a
/// shell, 1,024, is too small for the connections to all ports.
fn raise_descriptor_limit() {
    const WANTED: u64 = 65_536;
    let now = getrlimit(Resource::Nofile);
    let allowed = now.maximum.map_or(WANTED, |most| most.min(WANTED));
    if now.current.is_none_or(|current| current >= allowed) {
        return;
    }
    let wanted = Rlimit {
        current: Some(allowed),
        ..now
    };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::warn!(%error, limit = now.current, "the limit of open files cannot be raised");
    }
}

// `witness guard`: a process that `witness run` starts; not for manual use. The member writes messages to its standard input. If the
// messages end, the guard closes mysqld to readers; see `mysqld_controller::read_fence::guard`.

/// The most messages that wait for a busy guard.
const MESSAGES: usize = 64;

/// Runs `witness guard`.
///
/// # Errors
/// When the configuration cannot be read.
pub(crate) fn guard(args: &ConfigArgs) -> Attempt {
    let (config, _) = args.load(FileCheck::Readable)?;
    start_log(&config.logging)?;
    let member = &config.member;
    let Some(settings) = &member.mysql else {
        return Ok(());
    };
    let (connect, server) = guarded_server(member, settings)?;
    let options = GuardOptions {
        member_dir: member.data_dir.clone(),
        connect,
        limit: member.raft.lease + settings.fence_after,
        grace: settings.fence_after,
        server,
    };
    let (sender, messages) = mpsc::channel(MESSAGES);
    let (args, password) = (args.clone(), options.connect.password.clone());
    std::thread::spawn(move || listen(&sender, || reload_password(&args, &password)));
    block_on(async {
        // The guard receives these signals only to ignore them. The member handles stop and reload for both processes, and the guard ends
        // when there is nothing to guard.
        let _received = (StopSignals::new()?, signal(SignalKind::hangup())?);
        guard_readers(options, messages).await;
        Ok(())
    })
}

/// Reads messages from standard input until the member has ended. If one read returns several messages, a reload among them is executed;
/// of the others, only the last is passed on.
fn listen(sender: &mpsc::Sender<Word>, reload: impl Fn()) {
    let mut buffer = [0; 256];
    let mut line = std::io::stdin().lock();
    while let Ok(length @ 1..) = line.read(&mut buffer) {
        let received = &buffer[..length];
        if received.contains(&RELOAD) {
            reload();
        }
        let Some(last) = received.iter().rfind(|word| **word != RELOAD) else {
            continue;
        };
        let guards = *last == GUARDS;
        if sender.blocking_send(Word::GoesOn { guards }).is_err() {
            return;
        }
    }
}

/// Reads the password of the member's account again, after the member has done the same.
fn reload_password(args: &ConfigArgs, password: &Secret) {
    let newer = args.member().and_then(|settings| {
        let connect = settings.mysql.as_ref().map(connect_options).transpose();
        connect.map_err(Failure::error)
    });
    match newer {
        Ok(newer) => newer
            .iter()
            .for_each(|newer| password.renew(&newer.password)),
        Err(error) => tracing::warn!(%error, "the guard keeps the password that it has"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_for_a_hard_state_fits_the_cause() {
        let advice = |kind: io::ErrorKind| {
            let failure = failure(&MemberError::Meta {
                path: "/data/meta".into(),
                source: kind.into(),
            });
            failure.to_string()
        };
        let said = |kind, words: &str| {
            let advice = advice(kind);
            assert!(advice.contains(words), "{kind}: {advice}");
            let process = advice.contains("stop that process");
            assert_eq!(process, kind == io::ErrorKind::ResourceBusy, "{advice}");
        };
        said(io::ErrorKind::StorageFull, "free space");
        said(io::ErrorKind::QuotaExceeded, "free space");
        said(io::ErrorKind::InvalidData, "under a new number");
        said(io::ErrorKind::ResourceBusy, "stop that process");
        said(io::ErrorKind::PermissionDenied, "permission denied");
        let unreadable = failure(&MemberError::Open(binlog_store::OpenError::Io(
            "reading binlog.000001".to_owned(),
            io::Error::other("input/output error"),
        )));
        let said = unreadable.to_string();
        assert!(said.contains("put another member's file"), "{said}");
        // A full disk gets the same advice at every step of a start.
        let identity = IdentityFileError::Io {
            path: "/data/identity".into(),
            source: io::ErrorKind::StorageFull.into(),
        };
        let full = failure(&identity.into()).to_string();
        assert!(full.contains("free space"), "{full}");
    }
}
