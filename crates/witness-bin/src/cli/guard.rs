//! `witness guard`: a process that `witness run` starts; not for manual use. Its standard input reports that the member is alive. It
//! excludes readers from mysqld when the member ends without a message; see `mysqld_controller::read_fence::guard`.

use std::io::Read;

use member::{GUARDS, RELOAD, connect_options, guarded_server};
use mysql_link::Secret;
use mysqld_controller::read_fence::{GuardOptions, Word, guard};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::cli::config_args::ConfigArgs;
use crate::cli::log_filter::start_log;
use crate::cli::signals::StopSignals;
use crate::terminal::Failure;

/// Limit of unread messages. The member sends one at a time, and a busy guard reads them later.
const WORDS: usize = 64;

/// Arguments of `witness guard`.
#[derive(Debug, clap::Args)]
pub(crate) struct GuardArgs {
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs `witness guard`.
///
/// # Errors
/// When the configuration cannot be read.
pub(crate) fn run(args: &GuardArgs) -> Result<(), Failure> {
    let (config, _) = args.config.load()?;
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (told, words) = mpsc::channel(WORDS);
    let (again, password) = (args.config.clone(), options.connect.password.clone());
    std::thread::spawn(move || listen(&told, || reload(&again, &password)));
    runtime.block_on(async {
        let mut stop = StopSignals::new()?;
        let mut hangup = signal(SignalKind::hangup())?;
        // Ignores signals: the member handles stop and reload for both, and the guard ends when there is nothing to guard.
        let deaf = async {
            loop {
                tokio::select! {
                    _ = stop.next() => {}
                    _ = hangup.recv() => {}
                }
            }
        };
        tokio::select! {
            () = guard(options, words) => {}
            () = deaf => {}
        }
        Ok(())
    })
}

/// Reads until the member has ended. Of several messages the last one counts, and any of them may request the reload.
fn listen(told: &mpsc::Sender<Word>, reload: impl Fn()) {
    let mut heard = [0; 256];
    let mut line = std::io::stdin().lock();
    while let Ok(length @ 1..) = line.read(&mut heard) {
        let heard = &heard[..length];
        if heard.contains(&RELOAD) {
            reload();
        }
        let Some(last) = heard.iter().rfind(|word| **word != RELOAD) else {
            continue;
        };
        let guards = *last == GUARDS;
        if told.blocking_send(Word::GoesOn { guards }).is_err() {
            return;
        }
    }
}

/// Reloads the password of the member's account, as the member has done.
fn reload(args: &ConfigArgs, password: &Secret) {
    let newer = args.member().map(|settings| settings.mysql);
    let newer = newer.map(|mysql| mysql.as_ref().map(connect_options).transpose());
    match newer {
        Ok(Ok(newer)) => newer
            .iter()
            .for_each(|newer| password.renew(&newer.password)),
        Ok(Err(error)) => tracing::warn!(%error, "the guard keeps the password that it has"),
        Err(error) => tracing::warn!(%error, "the guard keeps the password that it has"),
    }
}
