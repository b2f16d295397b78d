//! `witness guard`: a process that `witness run` starts; not for manual use. Its standard input reports that the member is alive. It
//! excludes readers from mysqld when the member ends without a message; see `mysqld_controller::read_fence::guard`.

use std::io::Read;

use member::{GUARDS, RELOAD, connect_options, guarded_server};
use mysql_link::Secret;
use mysqld_controller::read_fence::{GuardOptions, Word, guard};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::cli::config_args::ConfigArgs;
use crate::cli::process::{StopSignals, start_log};
use crate::cli::session::block_on;
use crate::config::FileCheck;
use crate::terminal::{Attempt, Failure};

/// Limit of unread messages. The member sends one at a time, and a busy guard reads them later.
const MESSAGES: usize = 64;

/// Runs `witness guard`.
///
/// # Errors
/// When the configuration cannot be read.
pub(crate) fn run(args: &ConfigArgs) -> Attempt {
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
    std::thread::spawn(move || listen(&sender, || reload(&args, &password)));
    block_on(async {
        // Once they have a receiver, signals do not end this process: the member handles stop and reload for both, and the guard ends when
        // there is nothing to guard.
        let _received = (StopSignals::new()?, signal(SignalKind::hangup())?);
        guard(options, messages).await;
        Ok(())
    })
}

/// Reads until the member has ended. Of several messages the last one counts, and any of them may request the reload.
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

/// Reloads the password of the member's account, as the member has done.
fn reload(args: &ConfigArgs, password: &Secret) {
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
