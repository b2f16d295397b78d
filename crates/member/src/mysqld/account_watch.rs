//! Looks now and then whether the member can still log in to its mysqld, and whether it can behind its next start.

use std::time::Duration;

use mysql_link::ConnectOptions;
use mysqld_controller::settings::{OwnAccount, log_in};
use tokio::sync::watch;

use super::tell;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Looks for ever; what is to be said of it goes to `told`. A look that comes to nothing changes nothing.
pub(super) async fn look(
    connect: ConnectOptions,
    mut account: OwnAccount,
    told: watch::Sender<Option<String>>,
) {
    loop {
        match log_in(&connect).await {
            Ok(login) => tell(&told, account.see(login)),
            Err(error) => {
                tracing::debug!(%error, "whether the member's account is let in is not known for now");
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
