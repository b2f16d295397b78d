//! Closes a primary for a planned switchover. `super_read_only` waits for writing statements and for `LOCK TABLES`, and new writes queue
//! after `super_read_only`. So it is set when no statement has run for long. Statements that still run at the operator's limit are killed.
//!
//! No acknowledged transaction is lost. A session is killed only before its commit begins; its transaction is rolled back, and its client
//! gets an error. A commit that begins between check and kill continues without its client, as after any broken connection. Closing waits
//! for that commit. The ring receives its transaction, or the transaction is cut later, like every other.

use std::collections::BTreeSet;
use std::time::Duration;

use mysql_link::{ConnectOptions, Connection};
use tokio::time::Instant;

use crate::read_only::{self, ReadOnlyError};
use crate::sessions::{BlockingSession, holding, seen};

/// Seconds. A statement that has run for less is left to end normally. mysqld counts whole seconds.
const LONG: u64 = 1;
/// The pause between two checks of the running statements.
const LOOK: Duration = Duration::from_millis(200);
/// How long a rollback may take after a kill. Whole seconds; new writes wait in the meantime.
const ROLLBACK: Duration = Duration::from_secs(10);
const HELD_UP: &str = "what holds a planned switchover up";

/// Maximum duration of [`close`] with this limit, not counting the server's answers.
pub const fn longest(limit: Duration) -> Duration {
    limit.saturating_add(ROLLBACK)
}

/// Sessions that block the global lock. Committing sessions do not count: they finish within moments, or wait for the ring.
const HOLDERS: &str = "held.OBJECT_TYPE = 'GLOBAL' AND held.LOCK_TYPE = 'INTENTION_EXCLUSIVE' \
     AND NOT EXISTS (SELECT 1 FROM performance_schema.metadata_locks AS committing \
         WHERE committing.OWNER_THREAD_ID = held.OWNER_THREAD_ID \
         AND committing.OBJECT_TYPE = 'COMMIT' AND committing.LOCK_STATUS = 'GRANTED')";

const fn is_long(holder: &BlockingSession) -> bool {
    holder.seconds >= LONG
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Close,
    /// Let running statements and new writes continue.
    Wait,
    /// Close the server, and kill the statements that block the close.
    Kill,
    /// Give up: nothing can be killed, or the switchover is cancelled.
    GiveUp,
}

/// Decides the next action. `held_up`: the last attempt to close was blocked. `over`: the limit has passed.
fn course(holders: &[BlockingSession], held_up: bool, over: bool, wanted: bool) -> Course {
    if !wanted || held_up && holders.is_empty() {
        // Waiting commits block the close, and only the ring completes them.
        return Course::GiveUp;
    }
    match (over, holders.iter().any(is_long)) {
        (false, false) => Course::Close,
        (false, true) => Course::Wait,
        (true, _) if !held_up && holders.is_empty() => Course::Close,
        (true, _) => Course::Kill,
    }
}

/// Blocks all writes as soon as no statement blocks the close. At the end of `limit`, kills the statements that block it. Without a limit,
/// tries once. Stops when `wanted` becomes false.
pub async fn close(
    options: &ConnectOptions,
    lock_wait: Duration,
    limit: Option<Duration>,
    wanted: impl Fn() -> bool,
) -> Result<(), ReadOnlyError> {
    let Some(limit) = limit else {
        return read_only::close(options, lock_wait).await;
    };
    let until = Instant::now() + limit;
    let mut held_up = false;
    loop {
        let mut session = Connection::open_with_own_settings(options).await?;
        let holders = seen(holding(&mut session, HOLDERS).await, HELD_UP);
        match course(&holders, held_up, Instant::now() >= until, wanted()) {
            Course::Close => match read_only::close_by(&mut session, options, lock_wait).await {
                Err(ReadOnlyError::BehindCommits) => held_up = true,
                done => {
                    session.close().await;
                    return done;
                }
            },
            Course::Wait => {}
            Course::Kill => return kill_and_close(options).await,
            Course::GiveUp if held_up => return Err(ReadOnlyError::BehindCommits),
            Course::GiveUp => return Err(ReadOnlyError::CalledOff),
        }
        session.close().await;
        tokio::time::sleep(LOOK).await;
    }
}

/// Closes the server while killing the statements that block the close. New holders cannot appear while the closing statement waits.
async fn kill_and_close(options: &ConnectOptions) -> Result<(), ReadOnlyError> {
    let mut killed = BTreeSet::new();
    let killing = async {
        loop {
            tokio::time::sleep(LOOK).await;
            let looked = match Connection::open_with_own_settings(options).await {
                Ok(mut session) => holding(&mut session, HOLDERS).await,
                Err(error) => Err(error),
            };
            for holder in seen(looked, HELD_UP) {
                if is_long(&holder) && killed.insert(holder.id) {
                    let why = "its statement or its locked tables hold a planned switchover up";
                    // A failed kill results in a failed close.
                    let _ = holder.kill(options, why).await;
                }
            }
        }
    };
    tokio::select! {
        closed = read_only::close(options, ROLLBACK) => closed,
        () = killing => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_short_ends_by_itself_and_what_is_long_is_killed_at_the_end_of_the_limit() {
        use Course::Close;
        use Course::GiveUp;
        use Course::Kill;
        use Course::Wait;
        let of = |seconds: &[u64]| -> Vec<BlockingSession> {
            let holder = |seconds: &u64| BlockingSession {
                id: 7,
                seconds: *seconds,
                account: "`app`@`h`".to_owned(),
                holds: "GLOBAL".to_owned(),
                waiting: None,
                of_member: false,
            };
            seconds.iter().map(holder).collect()
        };
        // Columns: seconds of the holders, whether the last attempt was blocked, whether the limit is over; the expected action.
        let table: [(&[u64], bool, bool, Course); 9] = [
            (&[], false, false, Close),
            (&[0], false, false, Close),
            (&[0, 4], false, false, Wait),
            (&[0], true, false, Close),
            // Commits that wait for the ring block the close: no session is killed for them.
            (&[], true, false, GiveUp),
            (&[], true, true, GiveUp),
            (&[], false, true, Close),
            (&[0], true, true, Kill),
            (&[9], false, true, Kill),
        ];
        for (seconds, held_up, over, expected) in table {
            let chosen = course(&of(seconds), held_up, over, true);
            assert_eq!(chosen, expected, "{seconds:?} {held_up} {over}");
            assert_eq!(course(&of(seconds), held_up, over, false), GiveUp);
        }
    }
}
