//! `witness guard`: what `witness run` starts beside itself, and nobody by hand. It hears on its standard input that the member
//! goes on, and keeps readers off the member's mysqld when that ends without a word; see `mysqld_controller::read_fence::guard`.

use std::io::Read;

use member::{GUARDS, guarded_server};
use mysqld_controller::read_fence::{GuardOptions, Word, guard};
use tokio::sync::mpsc;

use crate::cli::config_args::ConfigArgs;
use crate::cli::run::{StopSignals, start_log};
use crate::terminal::Failure;

/// Words that were not taken yet. The member says one at a time, and a guard that acts hears them behind it.
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
        server,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (told, words) = mpsc::channel(WORDS);
    std::thread::spawn(move || listen(&told));
    runtime.block_on(async {
        let mut stop = StopSignals::new()?;
        // It ends when there is nothing to guard, and its member knows: whoever stops both tells the member.
        let deaf = async {
            loop {
                stop.next().await;
            }
        };
        tokio::select! {
            () = guard(options, words) => {}
            () = deaf => {}
        }
        Ok(())
    })
}

/// Hears until the member has ended. Of several words at once the last one counts.
fn listen(told: &mpsc::Sender<Word>) {
    let mut heard = [0; 256];
    let mut line = std::io::stdin().lock();
    while let Ok(length @ 1..) = line.read(&mut heard) {
        let guards = heard.get(length - 1) == Some(&GUARDS);
        if told.blocking_send(Word::GoesOn { guards }).is_err() {
            return;
        }
    }
}
