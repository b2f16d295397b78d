//! Admission of calls between members. Every call identifies its caller and the member that it is meant for,
//! each with its data directory. Each kind of mistake has its own refusal, with a message for an operator.

use raft_types::{FormatRange, FormatVersion, Incarnation, MemberId, MemberRecord, RingId};
use thiserror::Error;

use crate::identity::Identity;

/// One end of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Party {
    /// The member's number in the ring.
    pub member: MemberId,
    /// The identity of the member's data directory. It changes if the member loses its data.
    pub incarnation: Incarnation,
}

/// The header of every call between members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// The ring that the caller belongs to; a member of another ring refuses the call.
    pub ring: RingId,
    /// The caller, with its data directory: if the directory was replaced, the call is refused.
    pub from: Party,
    /// The member that the call is meant for.
    pub to: Party,
    /// The format of the call. The envelope itself is the same in all formats.
    pub format: FormatVersion,
    /// The formats that the caller supports; for messages only.
    pub speaks: FormatRange,
}

/// Why a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AdmissionRefusal {
    /// This member belongs to no ring yet.
    #[error(
        "member {own} belongs to no ring yet, so it refuses calls of ring {theirs}; it was never bootstrapped, or its data directory was lost: a member that lost its data must return under a new number"
    )]
    NoRing {
        /// The member that was called and refuses.
        own: MemberId,
        /// The ring that the caller belongs to.
        theirs: RingId,
    },
    /// The caller belongs to another ring.
    #[error(
        "member {caller} calls from ring {theirs}, but this is member {own} of ring {ours}; check the addresses in both configurations"
    )]
    ForeignRing {
        /// The member that calls.
        caller: MemberId,
        /// The ring that the caller belongs to.
        theirs: RingId,
        /// The member that was called and refuses.
        own: MemberId,
        /// The ring that the called member belongs to.
        ours: RingId,
    },
    /// The call was meant for another member.
    #[error(
        "the call is for member {addressed}, but this is member {own}; check the address that the ring knows of member {addressed}"
    )]
    WrongMember {
        /// The member that was meant.
        addressed: MemberId,
        /// The member that was called in its place.
        own: MemberId,
    },
    /// The caller's membership has another data directory for this member.
    #[error(
        "the ring knows member {own} with data directory {known}, but this one is {ours}: it was wiped or replaced; a member that lost its data must return under a new number"
    )]
    WipedHere {
        /// The member that was called and refuses.
        own: MemberId,
        /// The directory that the caller's membership names.
        known: Incarnation,
        /// The directory that this member uses.
        ours: Incarnation,
    },
    /// This member's membership has another data directory for the caller.
    #[error(
        "member {caller} calls with data directory {theirs}, but the ring knows it with {known}: it was wiped or replaced; a member that lost its data must return under a new number"
    )]
    WipedCaller {
        /// The member that calls.
        caller: MemberId,
        /// The directory that the caller uses.
        theirs: Incarnation,
        /// The directory in this member's membership.
        known: Incarnation,
    },
    /// The caller has this member's number, so two processes use the same number.
    #[error(
        "a caller claims to be member {0}, which is this member; two processes use the same number: give one of them another"
    )]
    SameMember(MemberId),
    /// This member does not support the format of the call.
    #[error(
        "member {caller} calls in format {format} of those that it speaks ({theirs}), and member {own} speaks {ours}: {}",
        way(*.caller, *.format, *.own, *.ours)
    )]
    Format {
        /// The member that calls.
        caller: MemberId,
        /// The format of the call.
        format: FormatVersion,
        /// The formats that the caller supports.
        theirs: FormatRange,
        /// The member that was called and refuses.
        own: MemberId,
        /// The formats that the called member supports.
        ours: FormatRange,
    },
}

/// Returns the advice for a format that this member does not support: which member must run a later or an earlier version.
fn way(caller: MemberId, format: FormatVersion, own: MemberId, ours: FormatRange) -> String {
    match format > ours.newest() {
        true => format!("install a later version of witness at member {own}"),
        false => format!(
            "the ring's format is below {}; until it has risen, run an earlier version of witness at member {own}, or a later one at member {caller}",
            ours.oldest()
        ),
    }
}

impl AdmissionRefusal {
    /// Returns a short name for programs, which never changes between versions.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoRing { .. } => "no-ring",
            Self::ForeignRing { .. } => "foreign-ring",
            Self::WrongMember { .. } => "wrong-member",
            Self::WipedHere { .. } => "wiped-here",
            Self::WipedCaller { .. } => "wiped-caller",
            Self::SameMember(_) => "same-member",
            Self::Format { .. } => "format",
        }
    }
}

/// Checks a call to a member. `ours` are the formats that its program supports, and `known` finds a member in its membership. This
/// membership may be older than the caller's, so an unknown caller is admitted: it may have joined since.
///
/// # Errors
/// The first mismatch.
pub fn admit(
    envelope: &Envelope,
    own: &Identity,
    ours: FormatRange,
    known: impl FnOnce(MemberId) -> Option<MemberRecord>,
) -> Result<(), AdmissionRefusal> {
    let Envelope { ring, from, to, .. } = *envelope;
    let Some(own_ring) = own.ring.ring() else {
        return Err(AdmissionRefusal::NoRing {
            own: own.member,
            theirs: ring,
        });
    };
    if ring != own_ring {
        return Err(AdmissionRefusal::ForeignRing {
            caller: from.member,
            theirs: ring,
            own: own.member,
            ours: own_ring,
        });
    }
    if to.member != own.member {
        return Err(AdmissionRefusal::WrongMember {
            addressed: to.member,
            own: own.member,
        });
    }
    if to.incarnation != own.incarnation {
        return Err(AdmissionRefusal::WipedHere {
            own: own.member,
            known: to.incarnation,
            ours: own.incarnation,
        });
    }
    if from.member == own.member {
        return Err(AdmissionRefusal::SameMember(own.member));
    }
    if let Some(record) = known(from.member)
        && record.incarnation != from.incarnation
    {
        return Err(AdmissionRefusal::WipedCaller {
            caller: from.member,
            theirs: from.incarnation,
            known: record.incarnation,
        });
    }
    if !ours.has(envelope.format) {
        return Err(AdmissionRefusal::Format {
            caller: from.member,
            format: envelope.format,
            theirs: envelope.speaks,
            own: own.member,
            ours,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::RingState;

    struct Scene {
        own: Identity,
        envelope: Envelope,
        ours: FormatRange,
        record: MemberRecord,
    }

    fn scene() -> Scene {
        let ring = RingId::random();
        let own = Identity {
            ring: RingState::Belongs { ring },
            ..Identity::fresh(MemberId(2))
        };
        let from = Party {
            member: MemberId(1),
            incarnation: Incarnation::random(),
        };
        let to = Party {
            member: own.member,
            incarnation: own.incarnation,
        };
        let record = MemberRecord {
            incarnation: from.incarnation,
            ..MemberRecord::default()
        };
        Scene {
            own,
            envelope: Envelope {
                ring,
                from,
                to,
                format: FormatVersion::FIRST,
                speaks: FormatRange::OF_THIS_PROGRAM,
            },
            ours: FormatRange::OF_THIS_PROGRAM,
            record,
        }
    }

    fn judged(change: impl FnOnce(&mut Scene)) -> Option<String> {
        let mut scene = scene();
        change(&mut scene);
        let Scene {
            own,
            envelope,
            ours,
            record,
        } = scene;
        let known = |id| (id == MemberId(1)).then_some(record);
        admit(&envelope, &own, ours, known)
            .err()
            .map(|refusal| refusal.to_string())
    }

    #[test]
    fn a_member_of_the_ring_is_listened_to() {
        assert_eq!(judged(|_| {}), None);
    }

    #[test]
    fn calls_of_members_unknown_to_this_log_are_admitted() {
        assert_eq!(
            judged(|scene| scene.envelope.from.member = MemberId(7)),
            None
        );
    }

    #[test]
    fn each_mistake_has_its_own_words() {
        type Change = fn(&mut Scene);
        let table: [(Change, &str); 8] = [
            (
                |scene| scene.own.ring = RingState::Fresh,
                "belongs to no ring yet",
            ),
            (
                |scene| scene.envelope.ring = RingId::random(),
                "member 1 calls from ring",
            ),
            (
                |scene| scene.envelope.to.member = MemberId(3),
                "the call is for member 3, but this is member 2",
            ),
            (
                |scene| scene.own.incarnation = Incarnation::random(),
                "the ring knows member 2 with data directory",
            ),
            (
                |scene| scene.envelope.from.incarnation = Incarnation::random(),
                "member 1 calls with data directory",
            ),
            (
                |scene| scene.envelope.from.member = MemberId(2),
                "two processes use the same number",
            ),
            (
                |scene| scene.envelope.format = FormatVersion(2),
                "member 2 speaks 1: install a later version of witness at member 2",
            ),
            (
                |scene| scene.ours = FormatRange::only(FormatVersion(2)),
                "the ring's format is below 2; until it has risen, run an earlier version of witness at member 2, or a later one at member 1",
            ),
        ];
        for (change, words) in table {
            let refusal = judged(change).unwrap_or_default();
            assert!(refusal.contains(words), "{words}: {refusal}");
        }
    }
}
