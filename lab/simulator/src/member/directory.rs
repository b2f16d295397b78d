//! The data directory of a member that begins without a ring: the member's identity and its ring, but not its log. The directory survives
//! the process. Writes to it are durable immediately.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use binlog_format::gtid::GtidSet;
use raft_types::{MemberId, MemberRecord, RingId};
use ring_admin::{Identity, IdentityBook, IdentityFile, IdentityPages, LogOrigin, RingState};

use crate::member::admin_calls::AdminCalls;

/// A data directory. Clones share it.
#[derive(Clone)]
pub(crate) struct Directory {
    pub(super) book: Arc<IdentityBook>,
    /// The calls to other members, with or without a ring.
    pub(super) calls: AdminCalls,
    /// The configured members. The incarnations of their directories are unknown.
    pub(super) configured: Arc<BTreeMap<MemberId, MemberRecord>>,
}

/// A file in memory. Its writes never fail and are never lost.
struct Kept;

impl IdentityFile for Kept {
    fn write(&self, _: &IdentityPages) -> io::Result<()> {
        Ok(())
    }
}

impl Directory {
    /// Creates an empty directory of this member.
    pub(crate) fn new(
        member: MemberId,
        record: &MemberRecord,
        calls: AdminCalls,
        configured: Arc<BTreeMap<MemberId, MemberRecord>>,
    ) -> Self {
        let identity = Identity {
            member,
            incarnation: record.incarnation,
            ring: RingState::Fresh,
        };
        let book = IdentityBook::new(identity, LogOrigin::default(), Box::new(Kept));
        Self {
            book: Arc::new(book),
            calls,
            configured,
        }
    }

    pub(super) fn state(&self) -> RingState {
        self.book.identity().ring
    }

    /// Returns the member's ring, even while the ring is being bootstrapped.
    pub(crate) fn ring(&self) -> Option<RingId> {
        self.state().ring()
    }

    /// Returns the GTIDs that precede the ring's log.
    pub(super) fn origin(&self) -> GtidSet {
        self.book.origin().gtids().parse().unwrap_or_default()
    }

    /// Records that the new ring of this member has its first entry.
    pub(super) fn has_bootstrapped(&self) {
        // The write cannot fail, because the file is in memory.
        drop(self.book.bootstrapped());
    }
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Directory").field(&self.book).finish()
    }
}
