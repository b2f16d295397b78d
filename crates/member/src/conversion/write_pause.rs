//! Measures how long clients cannot write: polls on its own connection whether the primary is read only.

use std::time::Duration;

use mysql_link::{ConnectOptions, Connection, LinkError};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Polling interval, about the accuracy of the result.
const AGAIN: Duration = Duration::from_millis(2);

/// A running measurement.
pub(super) struct WritePause {
    end: oneshot::Sender<()>,
    task: JoinHandle<Option<Duration>>,
}

impl WritePause {
    /// Measures from now on.
    ///
    /// # Errors
    /// When the server cannot be connected to.
    pub(super) async fn watch(primary: &ConnectOptions) -> Result<Self, LinkError> {
        let connection = Connection::open_with_own_settings(primary).await?;
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(watch(connection, ended));
        Ok(Self { end, task })
    }

    /// The pause so far, from the first closed moment to the last opening. None if its start or end was not seen.
    pub(super) async fn end(self) -> Option<Duration> {
        // The polling task may have ended already.
        let _ = self.end.send(());
        self.task.await.ok().flatten()
    }
}

async fn watch(mut connection: Connection, mut ended: oneshot::Receiver<()>) -> Option<Duration> {
    let mut seen = Seen::default();
    // The last check is after the end: it was opened before that.
    let mut last = false;
    loop {
        let asked = connection.query("SELECT @@GLOBAL.read_only").await.ok()?;
        let closed = asked.first().and_then(|row| row.text_at(0)) == Some("1");
        seen.look(closed, Instant::now());
        if last {
            return seen.pause();
        }
        tokio::select! {
            _ = &mut ended => last = true,
            () = tokio::time::sleep(AGAIN) => {}
        }
    }
}

/// When clients could write and when not, as seen by a polling session.
#[derive(Default)]
struct Seen {
    was_open: bool,
    closed_at: Option<Instant>,
    opened_at: Option<Instant>,
}

impl Seen {
    fn look(&mut self, closed: bool, now: Instant) {
        if !closed {
            if self.closed_at.is_some() && !self.was_open {
                self.opened_at = Some(now);
            }
            self.was_open = true;
        } else {
            if self.was_open && self.closed_at.is_none() {
                self.closed_at = Some(now);
            }
            self.was_open = false;
        }
    }

    fn pause(&self) -> Option<Duration> {
        let (closed, opened) = self.closed_at.zip(self.opened_at)?;
        self.was_open.then(|| opened - closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_known_when_it_was_seen_from_begin_to_end() {
        let begin = Instant::now();
        // Whether it was closed at each of these milliseconds.
        let table: [(&[bool], Option<u64>); 6] = [
            (&[false, true, true, false, false], Some(2)),
            (&[false, true, false, true, false], Some(3)),
            (&[false, false], None),
            (&[true, true, false], None),
            (&[false, true], None),
            (&[], None),
        ];
        for (looks, expected) in table {
            let mut seen = Seen::default();
            for (at, closed) in (0..).zip(looks) {
                seen.look(*closed, begin + Duration::from_millis(at));
            }
            assert_eq!(
                seen.pause(),
                expected.map(Duration::from_millis),
                "{looks:?}"
            );
        }
    }
}
