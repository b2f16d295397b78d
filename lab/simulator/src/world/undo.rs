//! Deferred events: ends of faults, and an operator's later steps.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use consensus::MemberEvidence;
use consensus::quorum::QuorumPolicy;
use raft_types::MemberId;

/// A deferred event.
#[derive(Debug, Clone)]
pub(super) enum Undo {
    Resume(MemberId),
    /// A paused server resumes.
    ResumeMysqld(MemberId),
    /// A host loses power.
    LosePower(MemberId),
    /// Links in these directions work again.
    Mend(Vec<(MemberId, MemberId)>),
    ClearWeather,
    NormalPace(MemberId),
    NoLag(MemberId),
    NoAlarm(MemberId),
    /// The disk has space again.
    Space(MemberId),
    /// A member with blocked streams is cut off completely.
    CutOff(MemberId),
    /// A crash that waited for disk calls happens now.
    CrashNow(MemberId),
    /// The leader and a majority of its voters are to be lost.
    LoseQuorum,
    /// They lose power.
    Lose(BTreeSet<MemberId>),
    /// The operator checks whether a quorum has to be repaired, at most this often.
    Look(u32),
    /// The operator has collected the members' evidence.
    Decide(Given, u32),
    /// Lost members return.
    BringBack(BTreeSet<MemberId>),
    /// It campaigns without recent contact to a leader.
    Stand(MemberId),
    /// The leader is cut off, and all except this one and the candidate restart.
    Relapse {
        leader: MemberId,
        candidate: MemberId,
        time: Duration,
    },
    /// A member loses its disk, and the leader fails.
    Wipe {
        member: MemberId,
        down: Duration,
    },
    /// The operator replaces a member whose disk is lost.
    Replace(Replacement),
    /// The operator requests a policy again.
    SetPolicy(PolicyRequest),
    /// A log rots at its end, and the leader fails.
    RotTail {
        member: MemberId,
        place: u64,
        down: Duration,
    },
}

/// A member with a lost disk, and its replacement. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Replacement {
    pub(super) lost: MemberId,
    pub(super) new: MemberId,
    pub(super) tries: u32,
    pub(super) done: Arc<Mutex<Done>>,
}

#[derive(Debug, Default)]
pub(super) struct Done {
    /// The lost one is or was in the ring's member list.
    pub(super) listed: bool,
    pub(super) removed: bool,
    pub(super) added: bool,
}

impl Replacement {
    pub(super) fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The members' evidence so far.
pub(super) type Given = Arc<Mutex<Vec<MemberEvidence>>>;

/// A policy requested by the operator. Clones share the request.
#[derive(Debug, Clone)]
pub(super) struct PolicyRequest {
    pub(super) policy: QuorumPolicy,
    pub(super) tries: u32,
    pub(super) done: Arc<AtomicBool>,
}
