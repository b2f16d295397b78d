//! What both commands work with: who is looked at, how a member is ordered, and how something is waited for.

use std::time::{Duration, SystemTime};

use binlog_format::gtid::GtidSet;
use mysqld_controller::conversion::{ServerLook, look};
use mysqld_controller::settings::Requirements;
use raft_types::{MemberId, MemberKind};
use tokio::time::Instant;
use uuid::Uuid;

use crate::conversion::{
    Conversion, ConversionFailure, FailureKind, MemberPlace, MemberSaid, RingSeen, StockReplica,
};
use crate::protocol::{MysqldAnswer, MysqldOrder};
use crate::status::start_advice;

/// Between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(50);
/// How long one order may take.
const ORDER_LIMIT: Duration = Duration::from_secs(60);
/// Clocks that differ by more are told: what a follower is behind is counted by them.
const CLOCKS_DIFFER: Duration = Duration::from_secs(1);

/// What the ring, its members' mysqlds and the stock replicas say at one moment.
pub(super) struct Everybody {
    pub(super) ring: RingSeen,
    /// The member of this host, and what it says.
    pub(super) own_place: MemberPlace,
    pub(super) own: MysqldAnswer,
    /// All other database members.
    pub(super) others: Vec<(MemberPlace, Result<MysqldAnswer, String>)>,
    pub(super) stock: Vec<(String, Result<ServerLook, String>)>,
}

impl Conversion<'_> {
    /// Looks at everybody, at the own server last: what the others have of it, it has then.
    ///
    /// # Errors
    /// When a member does not answer.
    pub(super) async fn everybody(&self) -> Result<Everybody, ConversionFailure> {
        let ring = self.members.ring().await;
        let silent = |(place, said): &(MemberPlace, Result<MemberSaid, String>)| {
            said.as_ref()
                .err()
                .map(|why| (place.name.clone(), why.clone()))
        };
        if let Some((name, error)) = ring.members.iter().find_map(silent) {
            return Err(ConversionFailure::new(
                FailureKind::NoQuorum,
                format!("`{name}` does not answer: {error}"),
                format!(
                    "{}, and do not bootstrap it; then run {} again",
                    start_advice(&name),
                    self.direction.name()
                ),
            ));
        }
        let databases = ring
            .members
            .iter()
            .map(|(place, _)| place)
            .filter(|place| place.kind == MemberKind::Database && place.id != self.own);
        // By number, whatever the configuration's order: the plan has them in this one.
        let mut databases: Vec<MemberPlace> = databases.cloned().collect();
        databases.sort_by_key(|place| place.id);
        let mut others = Vec::new();
        for place in databases {
            let answer = self.look(&place).await;
            others.push((place, answer.map_err(|failure| failure.what)));
        }
        let mut stock = Vec::new();
        for replica in &self.stock {
            stock.push((replica.address.clone(), replica.look().await));
        }
        let own_place = ring.place(self.own).cloned().ok_or_else(|| {
            ConversionFailure::error(
                "the member of this configuration is not in its own list of members",
            )
        })?;
        let own = self.look(&own_place).await?;
        Ok(Everybody {
            ring,
            own_place,
            own,
            others,
            stock,
        })
    }

    /// What a member says of itself and of its mysqld.
    ///
    /// # Errors
    /// The member's refusal.
    pub(super) async fn look(
        &self,
        place: &MemberPlace,
    ) -> Result<MysqldAnswer, ConversionFailure> {
        self.order(place, MysqldOrder::Look).await
    }

    /// Has a member do something.
    ///
    /// # Errors
    /// The member's refusal; unknown when its end is not known.
    pub(super) async fn order(
        &self,
        place: &MemberPlace,
        order: MysqldOrder,
    ) -> Result<MysqldAnswer, ConversionFailure> {
        let ordered = self.members.order(place, order, self.order_until());
        ordered.await.map_err(|failure| of_member(place, failure))
    }

    /// Has a member make the ring.
    ///
    /// # Errors
    /// As [`Self::order`].
    pub(super) async fn bootstrap(
        &self,
        place: &MemberPlace,
        origin: String,
    ) -> Result<(), ConversionFailure> {
        let made = self.members.bootstrap(place, origin, self.order_until());
        made.await.map_err(|failure| of_member(place, failure))
    }

    fn order_until(&self) -> Instant {
        self.until.min(Instant::now() + ORDER_LIMIT)
    }

    /// Waits until what a member says of itself is as wanted.
    ///
    /// # Errors
    /// Unknown when it is not in time; with what it says instead.
    pub(super) async fn until_said(
        &self,
        place: &MemberPlace,
        wanted: impl Fn(&MemberSaid) -> Result<(), String>,
    ) -> Result<(), ConversionFailure> {
        loop {
            let ring = self.members.ring().await;
            let mut members = ring.members.iter();
            let said = members.find(|(seen, _)| seen.id == place.id);
            let why = match said.and_then(|(_, said)| said.as_ref().ok()).map(&wanted) {
                Some(Ok(())) => return Ok(()),
                Some(Err(why)) => why,
                None => "it does not answer".to_owned(),
            };
            self.wait(&place.name, &why).await?;
        }
    }

    /// Waits a moment before the next look.
    ///
    /// # Errors
    /// Unknown when the time is over.
    pub(super) async fn wait(&self, place: &str, why: &str) -> Result<(), ConversionFailure> {
        if Instant::now() >= self.until {
            return Err(ConversionFailure::new(
                FailureKind::Unknown,
                format!("`{place}` was not ready in time: {why}"),
                format!(
                    "fix that, and run {} again: it continues where it stopped",
                    self.direction.name()
                ),
            ));
        }
        tokio::time::sleep(LOOK).await;
        Ok(())
    }

    /// Waits until a member's server has all of these transactions.
    ///
    /// # Errors
    /// When it cannot be looked at, or has not in time.
    pub(super) async fn until_executed(
        &self,
        place: &MemberPlace,
        wanted: &GtidSet,
    ) -> Result<(), ConversionFailure> {
        loop {
            let lacks = wanted.difference(&self.executed(place).await?);
            if lacks.is_empty() {
                return Ok(());
            }
            let why = format!("it is {} transactions behind", lacks.count());
            self.wait(&place.name, &why).await?;
        }
    }

    /// What a member's server has executed.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub(super) async fn executed(&self, place: &MemberPlace) -> Result<GtidSet, ConversionFailure> {
        let look = seen(&place.name, self.look(place).await?)?;
        look.executed().map_err(|error| {
            ConversionFailure::error(format!(
                "gtid_executed of `{}` cannot be read: {error}",
                place.name
            ))
        })
    }

    /// The stock replica at an address.
    pub(super) fn stock_replica(&self, address: &str) -> Option<&StockReplica> {
        self.stock.iter().find(|stock| stock.address == address)
    }
}

impl Everybody {
    /// A member by its name.
    ///
    /// # Errors
    /// Refused when there is none.
    pub(super) fn place(&self, name: &str) -> Result<&MemberPlace, ConversionFailure> {
        let mut places = self.ring.members.iter().map(|(place, _)| place);
        places.find(|place| place.name == name).ok_or_else(|| {
            let what = format!("the ring has no member `{name}`");
            ConversionFailure::new(FailureKind::Refused, what, "")
        })
    }

    /// Whether another member acts on its mysqld, or will.
    pub(super) fn manages(&self, place: &MemberPlace) -> bool {
        let mut others = self.others.iter();
        let answer = others.find(|(other, _)| other.id == place.id);
        answer.is_some_and(|(_, answer)| answer.as_ref().is_ok_and(acts))
    }

    /// Whether the ring's log is applied to the mysqld of a member.
    pub(super) fn follows(&self, name: &str) -> bool {
        let mut members = self.ring.members.iter();
        let member = members.find(|(place, _)| place.name == name);
        member.is_some_and(|(_, said)| said.as_ref().is_ok_and(|said| said.follows().is_ok()))
    }

    /// Whether the member of this host leads.
    pub(super) fn leads(&self) -> bool {
        self.ring.leader == Some(self.own_place.id)
    }

    /// What other members say of themselves.
    pub(super) fn said_by_others(
        &self,
        own: MemberId,
    ) -> impl Iterator<Item = (&MemberPlace, &MemberSaid)> {
        let members = self.ring.members.iter();
        members
            .filter(move |(place, _)| place.id != own)
            .filter_map(|(place, said)| Some((place, said.as_ref().ok()?)))
    }

    /// Clocks that do not agree.
    pub(super) fn clocks(&self) -> Vec<String> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap_or_default();
        let members = self.others.iter();
        let members = members.filter_map(|(place, answer)| Some((place, answer.as_ref().ok()?)));
        members
            .filter(|(_, answer)| {
                let theirs = Duration::from_millis(answer.now_ms);
                theirs.abs_diff(now) > CLOCKS_DIFFER
            })
            .map(|(place, _)| {
                format!(
                    "the clock of `{}` is more than a second off: what it is behind will be counted wrongly; set it by NTP",
                    place.name
                )
            })
            .collect()
    }
}

impl StockReplica {
    /// What it is at the moment.
    pub(super) async fn look(&self) -> Result<ServerLook, String> {
        // Nobody attaches to it, so that the identity does not matter.
        let requirements = Requirements::new(u32::MAX, Uuid::nil());
        let seen = look(&self.connect, &requirements).await;
        seen.map_err(|error| error.to_string())
    }
}

fn of_member(place: &MemberPlace, mut failure: ConversionFailure) -> ConversionFailure {
    failure.what = format!("`{}`: {}", place.name, failure.what);
    failure
}

/// What was seen of a server.
///
/// # Errors
/// When nothing was.
pub(super) fn seen(place: &str, answer: MysqldAnswer) -> Result<ServerLook, ConversionFailure> {
    let unseen = answer.unseen;
    answer.look.ok_or_else(|| {
        ConversionFailure::new(
            FailureKind::Error,
            format!(
                "the mysqld of `{place}` cannot be examined: {}",
                unseen.unwrap_or_default()
            ),
            "start it, or fix [mysql] in that member's configuration",
        )
    })
}

/// A look, or why there was none.
pub(super) fn look_of(answer: MysqldAnswer) -> Result<ServerLook, String> {
    let unseen = answer.unseen.unwrap_or_default();
    answer.look.ok_or(unseen)
}

/// Whether a member acts on its mysqld, or will as soon as it takes part in its ring: only its note keeps it from that.
pub(super) fn acts(answer: &MysqldAnswer) -> bool {
    answer.managed || (answer.ring.is_some() && !answer.unmanaged)
}

#[cfg(test)]
mod tests {
    use raft_types::RingId;

    use super::*;

    #[test]
    fn a_member_that_has_just_started_will_act_on_its_mysqld() {
        let ring = Some(RingId::default());
        for (ring, unmanaged, managed, expected) in [
            (ring, false, true, true),
            (ring, false, false, true),
            (ring, true, false, false),
            (None, false, false, false),
        ] {
            let answer = MysqldAnswer {
                ring,
                unmanaged,
                managed,
                ..MysqldAnswer::default()
            };
            assert_eq!(acts(&answer), expected, "{answer:?}");
        }
    }
}
