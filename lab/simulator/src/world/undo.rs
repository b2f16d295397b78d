//! What ends by itself, or is done later: by the faults' own ends and by the operator.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use consensus::MemberEvidence;
use consensus::quorum::QuorumPolicy;
use raft_types::MemberId;

/// What ends by itself.
#[derive(Debug, Clone)]
pub(super) enum Undo {
    Resume(MemberId),
    /// A server that was stopped where it stands.
    ResumeMysqld(MemberId),
    /// A host loses its power.
    LosePower(MemberId),
    /// Links in these directions work again.
    Mend(Vec<(MemberId, MemberId)>),
    ClearWeather,
    NormalPace(MemberId),
    NoLag(MemberId),
    NoAlarm(MemberId),
    /// There is space on the disk again.
    Space(MemberId),
    /// A member whose streams are stalled is cut off altogether.
    CutOff(MemberId),
    /// A crash that waited for calls to the disk comes now.
    CrashNow(MemberId),
    /// The leader and a majority of its voters are to be lost.
    LoseQuorum,
    /// They lose their power.
    Lose(BTreeSet<MemberId>),
    /// The operator looks whether a quorum has to be repaired, this often at most.
    Look(u32),
    /// The operator has the members' evidence.
    Decide(Given, u32),
    /// Members that were lost are there again.
    BringBack(BTreeSet<MemberId>),
    /// It campaigns, for it has not heard from a leader for long.
    Stand(MemberId),
    /// The leader is cut off, and all but this one and the candidate are started anew.
    Relapse {
        leader: MemberId,
        candidate: MemberId,
        time: Duration,
    },
    /// A member loses its disk, and the leader dies.
    Wipe {
        member: MemberId,
        down: Duration,
    },
    /// The operator puts another member in the place of one whose disk is gone.
    Replace(Replacement),
    /// The operator asks for a policy again.
    SetPolicy(PolicyRequest),
    /// A log rots at its end, and the leader dies.
    RotTail {
        member: MemberId,
        place: u64,
        down: Duration,
    },
}

/// A member whose disk was lost, and the one that takes its place. Clones are the same.
#[derive(Debug, Clone)]
pub(super) struct Replacement {
    pub(super) lost: MemberId,
    pub(super) new: MemberId,
    pub(super) tries: u32,
    pub(super) done: Arc<Mutex<Done>>,
}

#[derive(Debug, Default)]
pub(super) struct Done {
    /// The ring has, or had, the lost one as a member.
    pub(super) listed: bool,
    pub(super) removed: bool,
    pub(super) added: bool,
}

impl Replacement {
    pub(super) fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the members have said so far.
pub(super) type Given = Arc<Mutex<Vec<MemberEvidence>>>;

/// A policy that the operator wants. Clones are the same request.
#[derive(Debug, Clone)]
pub(super) struct PolicyRequest {
    pub(super) policy: QuorumPolicy,
    pub(super) tries: u32,
    pub(super) done: Arc<AtomicBool>,
}
