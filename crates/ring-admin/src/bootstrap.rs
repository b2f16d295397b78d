//! Bootstrap of a ring: the decision whether the members may form a ring ([`plan_bootstrap`]), and the first entry of the log.

use std::collections::BTreeMap;

use consensus::quorum::{PolicyGap, QuorumPolicy, policy};
use consensus::{Fault, ForceError, HistoryEvent};
use raft_types::{FormatRange, FormatVersion, MemberId, MemberRecord, Membership, RingId, Term};
use thiserror::Error;

use crate::formats;
use crate::history;
use crate::identity::{Identity, RingState};
use crate::member::Member;

// The bootstrap decision. One member has queried the identities of all configured members. The decision is whether they can form a ring,
// and which id and first membership the ring gets. All data directories must be fresh: a member that has voted before could vote twice.

/// A member's answer to the identity query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Introduction {
    /// The member's number, data directory and ring.
    pub identity: Identity,
    /// True if the member's log has no entry and the member has never voted. `None` while the member is opening its log.
    pub log_is_empty: Option<bool>,
    /// The formats that the member's program supports.
    pub speaks: FormatRange,
}

/// A ring that can be bootstrapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootstrapPlan {
    /// The ring's id: a new one, or the id of an interrupted bootstrap.
    pub ring: RingId,
    /// The ring's first membership, with the members' data directories.
    pub members: BTreeMap<MemberId, MemberRecord>,
}

/// Why the configured members cannot form a ring.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BootstrapRefusal {
    /// The bootstrap member is not in its own list.
    #[error("member {0} is not among the configured members; add it to the list")]
    NotConfigured(MemberId),
    /// The bootstrap member's data directory already belongs to a ring.
    #[error("member {member} belongs to ring {ring} already; start it without bootstrapping it")]
    OwnRing {
        /// The member that was started with `--bootstrap`.
        member: MemberId,
        /// The ring that its data directory belongs to.
        ring: RingId,
    },
    /// The bootstrap member has no vote.
    #[error("member {0} does not vote, so it cannot create the ring; bootstrap a member that does")]
    DoesNotVote(MemberId),
    /// Two members have the same name, address or data directory.
    #[error("members {first} and {second} have the same {what}; give each its own")]
    Same {
        /// The member that comes first in the list.
        first: MemberId,
        /// The later member that conflicts with it.
        second: MemberId,
        /// Name, address or data directory.
        what: &'static str,
    },
    /// A member did not answer.
    #[error("member {0} did not say who it is; start it, then try again")]
    Missing(MemberId),
    /// Another member answers at the address of a configured member.
    #[error("at the address of member {configured} member {found} answers; check the addresses")]
    OtherMember {
        /// The member that the configuration names at the address.
        configured: MemberId,
        /// The member that answered there.
        found: MemberId,
    },
    /// A member already belongs to a ring.
    #[error("member {member} belongs to ring {ring} already; a member is in one ring for good")]
    BelongsAlready {
        /// The configured member with a data directory that is not empty.
        member: MemberId,
        /// The ring that it belongs to.
        ring: RingId,
    },
    /// Another member is bootstrapping a ring.
    #[error("member {0} is creating a ring as well; bootstrap only one member")]
    OtherBootstrap(MemberId),
    /// A member is still opening its log.
    #[error("member {0} is still opening its log; try again in a moment")]
    Opening(MemberId),
    /// A member has a log entry or has voted, although its directory belongs to no ring.
    #[error(
        "member {0} has entries in its log; only members that were in no ring before can form one"
    )]
    HasEntries(MemberId),
    /// A member does not support the ring's first format, which is the oldest format that the bootstrap member supports.
    #[error(
        "member {member} speaks the formats {speaks}, and the ring would begin with {begins}; install the same version of witness on all members"
    )]
    Format {
        /// The member that does not support the ring's first format.
        member: MemberId,
        /// The formats that this member supports.
        speaks: FormatRange,
        /// The ring's first format.
        begins: FormatVersion,
    },
}

impl BootstrapRefusal {
    /// Whether a retry may succeed.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Missing(_) | Self::Opening(_))
    }
}

/// Decides whether the member with the identity `own` may bootstrap a ring of the `configured` members, from their answers. A resumed
/// bootstrap keeps its ring id. Otherwise the id is `new_ring`.
///
/// # Errors
/// The first obstacle.
pub fn plan_bootstrap(
    own: &Identity,
    configured: &BTreeMap<MemberId, MemberRecord>,
    introductions: &BTreeMap<MemberId, Introduction>,
    new_ring: RingId,
) -> Result<BootstrapPlan, BootstrapRefusal> {
    match configured.get(&own.member) {
        None => return Err(BootstrapRefusal::NotConfigured(own.member)),
        Some(record) if !record.votes => return Err(BootstrapRefusal::DoesNotVote(own.member)),
        Some(_) => {}
    }
    all_differ(configured, "name", |record| record.name.clone())?;
    all_differ(configured, "address", |record| record.address.clone())?;
    let begun = match own.ring {
        RingState::Fresh => None,
        RingState::Bootstrapping { ring } => Some(ring),
        RingState::Belongs { ring } => {
            let member = own.member;
            return Err(BootstrapRefusal::OwnRing { member, ring });
        }
    };
    let own_formats = introductions.get(&own.member);
    let begins = own_formats.map_or(FormatVersion::FIRST, |own| own.speaks.oldest());
    let mut members = configured.clone();
    for (&id, record) in &mut members {
        let introduction = introductions
            .get(&id)
            .ok_or(BootstrapRefusal::Missing(id))?;
        check_fresh(id, introduction, own.member, begun)?;
        let speaks = introduction.speaks;
        if !speaks.has(begins) {
            let member = id;
            return Err(BootstrapRefusal::Format {
                member,
                speaks,
                begins,
            });
        }
        record.incarnation = introduction.identity.incarnation;
    }
    all_differ(&members, "data directory", |record| record.incarnation)?;
    Ok(BootstrapPlan {
        ring: begun.unwrap_or(new_ring),
        members,
    })
}

fn check_fresh(
    id: MemberId,
    introduction: &Introduction,
    own: MemberId,
    begun: Option<RingId>,
) -> Result<(), BootstrapRefusal> {
    let found = introduction.identity;
    if found.member != id {
        return Err(BootstrapRefusal::OtherMember {
            configured: id,
            found: found.member,
        });
    }
    match found.ring {
        RingState::Fresh => return Ok(()),
        RingState::Bootstrapping { .. } if id != own => {
            return Err(BootstrapRefusal::OtherBootstrap(id));
        }
        RingState::Bootstrapping { .. } => {}
        // The member joined in an earlier attempt of the same bootstrap member.
        RingState::Belongs { ring } if begun == Some(ring) => {}
        RingState::Belongs { ring } => {
            return Err(BootstrapRefusal::BelongsAlready { member: id, ring });
        }
    }
    match introduction.log_is_empty {
        Some(true) => Ok(()),
        Some(false) => Err(BootstrapRefusal::HasEntries(id)),
        None => Err(BootstrapRefusal::Opening(id)),
    }
}

fn all_differ<T: Ord>(
    members: &BTreeMap<MemberId, MemberRecord>,
    what: &'static str,
    of: impl Fn(&MemberRecord) -> T,
) -> Result<(), BootstrapRefusal> {
    let mut seen: BTreeMap<T, MemberId> = BTreeMap::new();
    for (&second, record) in members {
        if let Some(first) = seen.insert(of(record), second) {
            return Err(BootstrapRefusal::Same {
                first,
                second,
                what,
            });
        }
    }
    Ok(())
}

/// Why a ring was not initialised.
#[derive(Debug, Error)]
pub enum BootstrapError {
    /// The log has entries, or the member has voted.
    #[error("this member has a log already; a ring is initialised once, on an empty one")]
    NotPristine,
    /// This member is not in the list of the ring's members.
    #[error("member {0} is not among the members to begin with")]
    NotInList(MemberId),
    /// The bootstrapping member does not vote.
    #[error("member {0} does not vote, so it cannot create the ring; bootstrap a member that does")]
    DoesNotVote(MemberId),
    /// Under the policy, the bootstrapping member is in no quorum. So no member of a quorum would ever receive the ring's first entry.
    #[error(
        "with policy {policy}, member {member} is in no quorum, so it cannot create the ring; bootstrap a voting member of those regions"
    )]
    OutsideTheQuorum {
        /// The member that was started with `--bootstrap`.
        member: MemberId,
        /// The policy of the new ring.
        policy: QuorumPolicy,
    },
    /// The policy needs voters that do not exist.
    #[error(transparent)]
    Policy(#[from] PolicyGap),
    /// The consensus engine has stopped, so the ring was not initialised.
    #[error(transparent)]
    Stopped(#[from] Fault),
}

impl Member {
    /// Initialises the ring with all its members, and the voter sets that the policy gives for a leader in this
    /// member's region. Only one member does this, once in a ring's life. If it stops before the entry is durable, the call is repeated.
    ///
    /// # Errors
    /// [`BootstrapError`]. In that case the log is unchanged.
    pub async fn bootstrap(
        &self,
        mut members: BTreeMap<MemberId, MemberRecord>,
    ) -> Result<(), BootstrapError> {
        let (id, node) = (self.id(), self.node());
        let own = members.get(&id).ok_or(BootstrapError::NotInList(id))?;
        if !own.votes {
            return Err(BootstrapError::DoesNotVote(id));
        }
        let rules = &self.config().rules;
        let sets = rules.voter_sets(&members, &own.region)?;
        if !sets.iter().any(|set| set.contains(&id)) {
            return Err(BootstrapError::OutsideTheQuorum {
                member: id,
                policy: rules.policy.clone(),
            });
        }
        let term = node.first_term().await?;
        let term = term.ok_or(BootstrapError::NotPristine)?;
        // `Membership::new` below cannot fail: the sets contain only listed members, and no set is empty.
        policy::write(&mut members, rules);
        formats::write(&mut members, self.config().program.formats.oldest());
        let event = HistoryEvent::Bootstrapped {
            members: members.len(),
        };
        let made = history::entry_now(Term(term), "", event);
        history::append(&mut members, &[made]);
        let membership = Membership::new(sets, members).map_err(|_| PolicyGap::NoVotersAtAll)?;
        match node.force_membership(membership, None, term).await {
            Ok(_) => Ok(()),
            Err(ForceError::Changed) => Err(BootstrapError::NotPristine),
            Err(ForceError::Stopped(fault)) => Err(fault.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scene {
        own: Identity,
        configured: BTreeMap<MemberId, MemberRecord>,
        introductions: BTreeMap<MemberId, Introduction>,
    }

    fn scene() -> Scene {
        let ids = [1, 2, 3].map(MemberId);
        let configured = ids.map(|id| {
            let record = MemberRecord {
                name: format!("m{id}"),
                votes: true,
                address: format!("host{id}:7000"),
                ..MemberRecord::default()
            };
            (id, record)
        });
        let introductions = ids.map(|id| {
            let introduction = Introduction {
                identity: Identity::fresh(id),
                log_is_empty: None,
                speaks: FormatRange::OF_THIS_PROGRAM,
            };
            (id, introduction)
        });
        Scene {
            own: introductions[0].1.identity,
            configured: configured.into(),
            introductions: introductions.into(),
        }
    }

    impl Scene {
        fn record(&mut self, id: u64) -> &mut MemberRecord {
            self.configured.get_mut(&MemberId(id)).unwrap()
        }

        fn introduction(&mut self, id: u64) -> &mut Introduction {
            self.introductions.get_mut(&MemberId(id)).unwrap()
        }

        fn plan(&self, new_ring: RingId) -> Result<BootstrapPlan, BootstrapRefusal> {
            plan_bootstrap(&self.own, &self.configured, &self.introductions, new_ring)
        }
    }

    #[test]
    fn fresh_members_become_a_ring_with_their_data_directories() {
        let scene = scene();
        let ring = RingId::random();
        let plan = scene.plan(ring).unwrap();
        assert_eq!(plan.ring, ring);
        for (id, record) in &plan.members {
            assert_eq!(
                record.incarnation,
                scene.introductions[id].identity.incarnation
            );
        }
    }

    #[test]
    fn an_interrupted_bootstrap_resumes_its_ring() {
        let mut scene = scene();
        let ring = RingId::random();
        scene.own.ring = RingState::Bootstrapping { ring };
        scene.introduction(1).identity.ring = RingState::Bootstrapping { ring };
        scene.introduction(1).log_is_empty = Some(true);
        scene.introduction(2).identity.ring = RingState::Belongs { ring };
        scene.introduction(2).log_is_empty = Some(true);
        assert_eq!(scene.plan(RingId::random()).unwrap().ring, ring);

        scene.introduction(2).log_is_empty = None;
        let refusal = scene.plan(RingId::random()).unwrap_err();
        assert!(refusal.may_pass(), "{refusal}");
    }

    #[test]
    fn every_obstacle_has_its_own_words() {
        type Change = fn(&mut Scene);
        let table: [(Change, &str); 12] = [
            (
                |scene| scene.introduction(1).speaks = FormatRange::only(FormatVersion(2)),
                "member 2 speaks the formats 1, and the ring would begin with 2",
            ),
            (
                |scene| {
                    scene.configured.remove(&MemberId(1));
                },
                "member 1 is not among the configured members",
            ),
            (
                |scene| {
                    scene.own.ring = RingState::Belongs {
                        ring: RingId::random(),
                    }
                },
                "start it without bootstrapping it",
            ),
            (
                |scene| scene.record(1).votes = false,
                "member 1 does not vote",
            ),
            (
                |scene| scene.record(3).name = "m2".to_owned(),
                "members 2 and 3 have the same name",
            ),
            (
                |scene| scene.record(3).address = "host1:7000".to_owned(),
                "members 1 and 3 have the same address",
            ),
            (
                |scene| {
                    scene.introductions.remove(&MemberId(2));
                },
                "member 2 did not say who it is",
            ),
            (
                |scene| scene.introduction(2).identity.member = MemberId(3),
                "at the address of member 2 member 3 answers",
            ),
            (
                |scene| {
                    scene.introduction(2).identity.ring = RingState::Belongs {
                        ring: RingId::random(),
                    }
                },
                "member 2 belongs to ring",
            ),
            (
                |scene| {
                    scene.introduction(2).identity.ring = RingState::Bootstrapping {
                        ring: RingId::random(),
                    }
                },
                "member 2 is creating a ring as well",
            ),
            (
                |scene| {
                    scene.introduction(3).identity.incarnation =
                        scene.introductions[&MemberId(2)].identity.incarnation;
                },
                "members 2 and 3 have the same data directory",
            ),
            (
                |scene| {
                    let ring = RingId::random();
                    scene.own.ring = RingState::Bootstrapping { ring };
                    scene.introduction(2).identity.ring = RingState::Belongs { ring };
                    scene.introduction(2).log_is_empty = Some(false);
                },
                "member 2 has entries in its log",
            ),
        ];
        for (change, words) in table {
            let mut scene = scene();
            change(&mut scene);
            let refusal = scene.plan(RingId::random()).unwrap_err().to_string();
            assert!(refusal.contains(words), "{words}: {refusal}");
        }
    }
}
