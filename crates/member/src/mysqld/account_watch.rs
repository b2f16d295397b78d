//! Periodically checks whether the member can still log in to its mysqld, and will be able to after mysqld's next start.

use std::time::Duration;

use mysql_link::ConnectOptions;
use mysqld_server::settings::{OwnAccount, log_in};
use tokio::sync::watch;

use super::tell;

/// Interval between checks.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Checks indefinitely and sends the warning to `told`. A failed check changes nothing.
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
