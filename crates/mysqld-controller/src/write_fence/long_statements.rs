//! Closes a primary for a planned switchover. `super_read_only` waits for statements that write and for `LOCK TABLES`, and new
//! writes wait behind it: so it is set when nothing has run for long, and what runs on when the operator's limit is over is killed.
//!
//! Nothing that was answered is lost: a session is killed only before its commit begins, its transaction is rolled back, and
//! its client gets an error. A commit that begins between the look and the kill goes on without its client, as behind any
//! broken connection: closing waits for it, and it is the ring's or nobody's, like every other.

use std::collections::BTreeSet;
use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError};
use tokio::time::Instant;

use crate::write_fence::read_only;
use crate::write_fence::read_only::ReadOnlyError;

/// A statement that has run for less is left to end by itself: mysqld counts whole seconds.
const LONG: u64 = 1;
/// Between two looks at what runs.
const LOOK: Duration = Duration::from_millis(200);
/// How long a rollback may take behind a kill. Whole seconds; new writes wait meanwhile.
const ROLLBACK: Duration = Duration::from_secs(10);

/// How long [`close`] takes at most with such a limit, but for the server's answers.
pub(crate) const fn longest(limit: Duration) -> Duration {
    limit.saturating_add(ROLLBACK)
}

/// Sessions that keep the global lock from being taken. Those that commit are none of them: they are done in a moment, or
/// wait for the ring.
const HOLDERS: &str = "SELECT t.PROCESSLIST_ID, t.PROCESSLIST_TIME, t.PROCESSLIST_USER \
     FROM performance_schema.metadata_locks AS held \
     JOIN performance_schema.threads AS t ON t.THREAD_ID = held.OWNER_THREAD_ID \
     WHERE held.OBJECT_TYPE = 'GLOBAL' AND held.LOCK_TYPE = 'INTENTION_EXCLUSIVE' AND held.LOCK_STATUS = 'GRANTED' \
     AND t.TYPE = 'FOREGROUND' AND t.PROCESSLIST_ID <> CONNECTION_ID() \
     AND NOT EXISTS (SELECT 1 FROM performance_schema.metadata_locks AS committing \
         WHERE committing.OWNER_THREAD_ID = held.OWNER_THREAD_ID \
         AND committing.OBJECT_TYPE = 'COMMIT' AND committing.LOCK_STATUS = 'GRANTED')";

/// A session that holds the closing up.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    id: u32,
    seconds: u64,
    user: String,
}

impl Holder {
    const fn is_long(&self) -> bool {
        self.seconds >= LONG
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Close,
    /// Let what runs go on, and new writes too.
    Wait,
    /// Close it, and kill what holds that up.
    Kill,
    /// Give up: nothing can be killed, or the switchover is off.
    GiveUp,
}

/// `held_up`: the last attempt to close it was.
fn course(holders: &[Holder], held_up: bool, over: bool, wanted: bool) -> Course {
    if !wanted || held_up && holders.is_empty() {
        // Commits are in the way, which nothing but the ring ends.
        return Course::GiveUp;
    }
    match (over, holders.iter().any(Holder::is_long)) {
        (false, false) => Course::Close,
        (false, true) => Course::Wait,
        (true, _) if !held_up && holders.is_empty() => Course::Close,
        (true, _) => Course::Kill,
    }
}

/// Lets nobody write, as soon as nothing runs that holds it up, and at the end of `limit` by killing that; tries once where
/// there is no limit. As long as `wanted` says so.
pub(crate) async fn close(
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
        let holders = seen(holders(&mut session).await);
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

/// While the statement waits, no new holder comes: what is killed was there before it.
async fn kill_and_close(options: &ConnectOptions) -> Result<(), ReadOnlyError> {
    let mut killed = BTreeSet::new();
    let killing = async {
        loop {
            tokio::time::sleep(LOOK).await;
            let looked =
                async { holders(&mut Connection::open_with_own_settings(options).await?).await };
            for holder in seen(looked.await) {
                if holder.is_long() && killed.insert(holder.id) {
                    kill(options, &holder).await;
                }
            }
        }
    };
    tokio::select! {
        closed = read_only::close(options, ROLLBACK) => closed,
        () = killing => Ok(()),
    }
}

async fn kill(options: &ConnectOptions, holder: &Holder) {
    let Holder { id, seconds, user } = holder;
    match Connection::kill(options, *id).await {
        Ok(()) => tracing::warn!(
            session = id,
            %user,
            seconds,
            "a session is killed, because its statement or its locked tables hold a planned switchover up"
        ),
        Err(error) => tracing::warn!(
            session = id,
            %user,
            "a session that holds a planned switchover up cannot be killed: {error}"
        ),
    }
}

/// Nobody, where it cannot be seen: then the closing is tried as without a limit.
fn seen(looked: Result<Vec<Holder>, LinkError>) -> Vec<Holder> {
    looked.unwrap_or_else(|error| {
        tracing::warn!("what holds a planned switchover up cannot be seen: {error}");
        Vec::new()
    })
}

async fn holders(session: &mut Connection) -> Result<Vec<Holder>, LinkError> {
    let answer = session.query(HOLDERS).await?;
    let holder = |row: &mysql_link::Row| {
        Some(Holder {
            id: row.text_at(0)?.parse().ok()?,
            seconds: row
                .text_at(1)
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
            user: row.text_at(2).unwrap_or_default().to_owned(),
        })
    };
    Ok(answer.rows.iter().filter_map(holder).collect())
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
        let of = |seconds: &[u64]| -> Vec<Holder> {
            let holder = |seconds: &u64| Holder {
                id: 7,
                seconds: *seconds,
                user: "app".to_owned(),
            };
            seconds.iter().map(holder).collect()
        };
        // Seconds of the holders, whether the last attempt was held up, whether the limit is over.
        let table: [(&[u64], bool, bool, Course); 9] = [
            (&[], false, false, Close),
            (&[0], false, false, Close),
            (&[0, 4], false, false, Wait),
            (&[0], true, false, Close),
            // Commits that wait for the ring are in the way: nobody is killed for them.
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
