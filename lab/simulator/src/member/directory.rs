//! The data directory of a member that begins without a ring, except for its log: its owner and its ring. It survives the process; writes
//! are durable immediately.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use binlog_format::gtid::GtidSet;
use raft_types::{MemberId, MemberRecord, RingId};
use ring_admin::{Identity, IdentityBook, IdentityFile, IdentityPages, LogOrigin, RingState};

use crate::member::admin_calls::AdminCalls;

/// See the module documentation. Clones share it.
#[derive(Clone)]
pub(crate) struct Directory {
    pub(super) book: Arc<IdentityBook>,
    /// How its member calls others, with or without a ring.
    pub(super) calls: AdminCalls,
    /// The configured members; their directories are unknown.
    pub(super) configured: Arc<BTreeMap<MemberId, MemberRecord>>,
}

/// Never loses anything.
struct Kept;

impl IdentityFile for Kept {
    fn write(&self, _: &IdentityPages) -> io::Result<()> {
        Ok(())
    }
}

impl Directory {
    /// An empty one of this member.
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

    /// Its ring, also while it is being made.
    pub(crate) fn ring(&self) -> Option<RingId> {
        self.state().ring()
    }

    /// The GTIDs before the ring's log.
    pub(super) fn origin(&self) -> GtidSet {
        self.book.origin().gtids().parse().unwrap_or_default()
    }

    /// Records that this member's new ring has its first entry.
    pub(super) fn has_bootstrapped(&self) {
        // It is only in memory.
        drop(self.book.bootstrapped());
    }
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Directory").field(&self.book).finish()
    }
}
