//! The log as a sequence of files, any of which can start another member's log; and starting this log with another member's file.

use std::io;

use bytes::Bytes;
use raft_types::{
    DoubtedTail, ElectionNotes, FilePart, FileStart, FileStartAnswer, FileStarts, OpId, Standing,
};
use tokio::sync::oneshot;

use crate::error::StoreError;
use crate::file_handles::ReadFault;
use crate::format::{FileHeader, FileNumber};
use crate::handle::LogHandle;
use crate::options::WriterMode;
use crate::scan::scan_start;
use crate::writer::Command;

/// Attempts to find a file again that a purge removes during the read.
const ATTEMPTS: usize = 4;

/// A file whose start is requested.
struct Wanted {
    number: FileNumber,
    header: std::sync::Arc<FileHeader>,
    before: OpId,
}

impl LogHandle {
    /// The first file that begins at or after `from` and after the purged files.
    fn wanted(&self, from: Option<OpId>) -> Option<Wanted> {
        let view = self.shared.view.lock();
        let from = from.max(view.floor_op_id())?;
        view.files.files().find_map(|file| {
            let before = file.header.before?;
            (before.index >= from.index).then(|| Wanted {
                number: file.number(),
                header: file.header.clone(),
                before,
            })
        })
    }

    /// Reads a file's start from the disk; blocks.
    fn read_start(&self, wanted: &Wanted) -> io::Result<FileStart> {
        let file = self.shared.handles.get(wanted.number)?;
        let mut header = vec![0; usize::try_from(wanted.header.end).unwrap_or(usize::MAX)];
        let read = file.read_at(&mut header, 0)?;
        header.truncate(read);
        let start = FileStart {
            before: wanted.before,
            membership: wanted.header.membership(),
            header: header.into(),
        };
        scan_start(&start, self.shared.ring)?;
        Ok(start)
    }

    async fn find_start(&self, from: Option<OpId>) -> io::Result<Option<FileStart>> {
        let runtime = match self.shared.writer_mode {
            WriterMode::Inline | WriterMode::Stepped => None,
            WriterMode::Thread => tokio::runtime::Handle::try_current().ok(),
        };
        let log = self.clone();
        let find = move || {
            let mut failure = None;
            for _ in 0..ATTEMPTS {
                let Some(wanted) = log.wanted(from) else {
                    return Ok(None);
                };
                match log.read_start(&wanted) {
                    Ok(start) => {
                        let first = wanted.before.index + 1;
                        log.shared.read_faults.succeeded(wanted.number, first);
                        return Ok(Some(start));
                    }
                    Err(error) => failure = Some((wanted, error)),
                }
            }
            let Some((wanted, error)) = failure else {
                return Ok(None);
            };
            let doing = format!("reading the begin of {}", wanted.number);
            let error = StoreError::unreadable(doing, &error);
            let first = wanted.before.index + 1;
            let fault = ReadFault::new(wanted.number, first, &error);
            log.shared.read_faults.failed(fault);
            Err(error.into())
        };
        match runtime {
            Some(runtime) => runtime
                .spawn_blocking(find)
                .await
                .map_err(io::Error::other)?,
            None => find(),
        }
    }
}

impl FileStarts for LogHandle {
    fn doubted_tail(&self) -> Option<DoubtedTail> {
        self.shared.view.lock().doubt
    }

    fn settle_tail(&self, from: OpId) -> FileStartAnswer<'_, bool> {
        Box::pin(async move {
            let (done, answer) = oneshot::channel();
            self.shared
                .submit(Command::SettleTail { from, done })
                .map_err(|refused| refused.1)?;
            let closed = || self.failure().unwrap_or(StoreError::Closed);
            Ok(answer.await.unwrap_or_else(|_| Err(closed()))?)
        })
    }

    fn note_doubt(&self, doubt: DoubtedTail) -> FileStartAnswer<'_, ()> {
        Box::pin(async move {
            let (done, answer) = oneshot::channel();
            self.shared
                .submit(Command::NoteDoubt { doubt, done })
                .map_err(|refused| refused.1)?;
            let closed = || self.failure().unwrap_or(StoreError::Closed);
            Ok(answer.await.unwrap_or_else(|_| Err(closed()))?)
        })
    }

    fn election_notes(&self) -> ElectionNotes {
        self.shared.view.lock().elections
    }

    fn note_elections(&self, notes: ElectionNotes) -> FileStartAnswer<'_, ()> {
        Box::pin(async move {
            let (done, answer) = oneshot::channel();
            self.shared
                .submit(Command::NoteElections { notes, done })
                .map_err(|refused| refused.1)?;
            let closed = || self.failure().unwrap_or(StoreError::Closed);
            Ok(answer.await.unwrap_or_else(|_| Err(closed()))?)
        })
    }

    fn standing(&self) -> Option<Standing> {
        let view = self.shared.view.lock();
        Some(Standing {
            term: view.vote.map_or(0, |vote| vote.leader_id.term),
            end: view.durable.max(view.floor_op_id()),
        })
    }

    fn part_of_file(&self, part: FilePart) -> FileStartAnswer<'_, Bytes> {
        Box::pin(LogHandle::part_of_file(self, part))
    }

    fn first_start(&self, from: Option<OpId>) -> FileStartAnswer<'_, Option<FileStart>> {
        Box::pin(self.find_start(from))
    }

    fn check_start(&self, start: &FileStart) -> io::Result<()> {
        scan_start(start, self.shared.ring).map(|_| ())
    }

    /// A power cut may interrupt it; the next open of the log completes it. Purge holds do not keep the old entries.
    fn begin_at(&self, start: FileStart) -> FileStartAnswer<'_, ()> {
        Box::pin(async move {
            let start = Box::new(scan_start(&start, self.shared.ring)?);
            let (done, answer) = oneshot::channel();
            self.shared
                .submit(Command::Begin { start, done })
                .map_err(|refused| refused.1)?;
            let answer = answer.await;
            let closed = || Err(self.failure().unwrap_or(StoreError::Closed));
            Ok(answer.unwrap_or_else(|_| closed())?)
        })
    }
}
