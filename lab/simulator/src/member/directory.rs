//! The data directory of a member that begins without a ring, as far as it is more than its log: whose it is, and to which ring it
//! belongs. It outlives the process; what is written in it is durable at once.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use binlog_format::gtid::GtidSet;
use consensus::{Identity, IdentityBook, IdentityFile, IdentityPages, LogOrigin, RingState};
use raft_types::{MemberId, MemberRecord, RingId};

use crate::member::admin_calls::AdminCalls;

/// See the module. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Directory {
    pub(super) book: Arc<IdentityBook>,
    /// How its member calls others that may have no ring either.
    pub(super) calls: AdminCalls,
    /// The members of its configuration, whose directories it does not know.
    pub(super) configured: Arc<BTreeMap<MemberId, MemberRecord>>,
}

/// Nothing of it is ever lost.
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

    /// Its ring, also one in the making.
    pub(crate) fn ring(&self) -> Option<RingId> {
        self.state().ring()
    }

    /// What the ring's log begins behind.
    pub(super) fn origin(&self) -> GtidSet {
        self.book.origin().gtids().parse().unwrap_or_default()
    }

    /// The ring that this member makes has its first entry.
    pub(super) fn has_bootstrapped(&self) {
        // It is kept in memory alone.
        drop(self.book.bootstrapped());
    }
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Directory").field(&self.book).finish()
    }
}
