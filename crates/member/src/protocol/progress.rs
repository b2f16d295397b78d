//! What an operator hears while a command is carried out.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::protocol::CommandEvent;

/// Tells the operator, who may not read or may have left.
pub(crate) struct CommandProgress(pub(crate) mpsc::Sender<Bytes>);

impl CommandProgress {
    pub(crate) fn tell(&self, event: &CommandEvent) {
        // An event is plain values, which always have a JSON form.
        let json = serde_json::to_vec(event).unwrap_or_default();
        drop(self.0.try_send(json.into()));
    }

    pub(crate) async fn end(&self, event: &CommandEvent) {
        let json = serde_json::to_vec(event).unwrap_or_default();
        drop(self.0.send(json.into()).await);
    }

    pub(crate) async fn phase<T, E>(
        &self,
        name: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let phase = name.to_owned();
        self.tell(&CommandEvent::Began { phase });
        let began = std::time::Instant::now();
        let done = work.await?;
        self.tell(&done_event(name, began.elapsed()));
        Ok(done)
    }
}

pub(crate) fn done_event(name: &str, took: Duration) -> CommandEvent {
    CommandEvent::Done {
        phase: name.to_owned(),
        seconds: took.as_secs_f64(),
    }
}
