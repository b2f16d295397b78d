//! Shared parts of both commands: observing members, sending orders, and waiting.

use std::time::{Duration, SystemTime};

use binlog_format::gtid::GtidSet;
use futures::future::BoxFuture;
use mysqld_server::conversion::{ServerLook, look};
use mysqld_server::settings::Requirements;
use raft_types::{MemberId, MemberKind, RingId};
use tokio::time::Instant;
use uuid::Uuid;

use crate::conversion::{Conversion, ConversionFailure, FailureKind, StockReplica};
use crate::protocol::{MysqldAnswer, MysqldOrder};
use crate::status::{Answer, MemberView, MysqlView, Question, answer, start_advice};

/// Interval between checks.
const LOOK: Duration = Duration::from_millis(50);
/// Time limit of one order.
const ORDER_LIMIT: Duration = Duration::from_secs(60);
/// Larger clock differences are reported: they distort a follower's lag.
const CLOCKS_DIFFER: Duration = Duration::from_secs(1);

/// State of the ring, its members' mysqlds and the stock replicas at one moment.
pub(super) struct Everybody {
    pub(super) ring: RingSeen,
    /// The member of this host, and its report.
    pub(super) own_place: MemberPlace,
    pub(super) own: MysqldAnswer,
    /// All other database members.
    pub(super) others: Vec<(MemberPlace, Result<MysqldAnswer, String>)>,
    pub(super) stock: Vec<(String, Result<ServerLook, String>)>,
}

impl Conversion<'_> {
    /// Checks all servers, the own one last: it has everything that the others received from it.
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
        // By number, in the plan's order, whatever the configuration's order.
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

    /// The report of a member on itself and its mysqld.
    ///
    /// # Errors
    /// The member's refusal.
    pub(super) async fn look(
        &self,
        place: &MemberPlace,
    ) -> Result<MysqldAnswer, ConversionFailure> {
        self.order(place, MysqldOrder::Look).await
    }

    /// Sends an order to a member.
    ///
    /// # Errors
    /// The member's refusal; unknown when its result is unknown.
    pub(super) async fn order(
        &self,
        place: &MemberPlace,
        order: MysqldOrder,
    ) -> Result<MysqldAnswer, ConversionFailure> {
        let ordered = self.members.order(place, order, self.order_until());
        ordered.await.map_err(|failure| of_member(place, failure))
    }

    /// Makes a member bootstrap the ring.
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

    /// Waits until a member's report is as wanted.
    ///
    /// # Errors
    /// Unknown when it is not in time; with the last report.
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

    /// Waits before the next check.
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
    /// When it cannot be checked, or lacks some at the deadline.
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

    /// Executed transactions of a member's server.
    ///
    /// # Errors
    /// When it cannot be checked.
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

    /// Whether another member manages its mysqld, or will.
    pub(super) fn manages(&self, place: &MemberPlace) -> bool {
        let mut others = self.others.iter();
        let answer = others.find(|(other, _)| other.id == place.id);
        answer.is_some_and(|(_, answer)| answer.as_ref().is_ok_and(acts))
    }

    /// True if the ring's log is applied to a member's mysqld.
    pub(super) fn follows(&self, name: &str) -> bool {
        let mut members = self.ring.members.iter();
        let member = members.find(|(place, _)| place.name == name);
        member.is_some_and(|(_, said)| said.as_ref().is_ok_and(|said| said.follows().is_ok()))
    }

    /// Whether the member of this host leads.
    pub(super) fn leads(&self) -> bool {
        self.ring.leader == Some(self.own_place.id)
    }

    /// Reports of the other members.
    pub(super) fn said_by_others(
        &self,
        own: MemberId,
    ) -> impl Iterator<Item = (&MemberPlace, &MemberSaid)> {
        let members = self.ring.members.iter();
        members
            .filter(move |(place, _)| place.id != own)
            .filter_map(|(place, said)| Some((place, said.as_ref().ok()?)))
    }

    /// Clocks that differ.
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
                    "the clock of `{}` is more than a second off: its lag will be computed wrongly; set it by NTP",
                    place.name
                )
            })
            .collect()
    }
}

impl StockReplica {
    /// Its current state.
    pub(super) async fn look(&self) -> Result<ServerLook, String> {
        // No member attaches to it, so the identity does not matter.
        let requirements = Requirements::new(u32::MAX, Uuid::nil());
        let seen = look(&self.connect, &requirements).await;
        seen.map_err(|error| error.to_string())
    }
}

fn of_member(place: &MemberPlace, mut failure: ConversionFailure) -> ConversionFailure {
    failure.what = format!("`{}`: {}", place.name, failure.what);
    failure
}

/// The observed state of a server.
///
/// # Errors
/// When it was not observed.
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

/// The result of a check, or why it failed.
pub(super) fn look_of(answer: MysqldAnswer) -> Result<ServerLook, String> {
    let unseen = answer.unseen.unwrap_or_default();
    answer.look.ok_or(unseen)
}

/// Whether a member manages its mysqld, or will when it takes part in its ring: only the note prevents that.
pub(super) fn acts(answer: &MysqldAnswer) -> bool {
    answer.managed || (answer.ring.is_some() && !answer.unmanaged)
}

// A conversion's interface to members.

/// The configured members, as a run reaches them.
pub trait ConversionMembers: Send + Sync {
    /// The ring as all of them currently see it.
    fn ring(&self) -> BoxFuture<'_, RingSeen>;

    /// Makes a member act on its mysqld, or check it.
    ///
    /// # Errors
    /// Its refusal, in the caller's wording; that its result is unknown.
    fn order<'a>(
        &'a self,
        member: &'a MemberPlace,
        order: MysqldOrder,
        until: Instant,
    ) -> BoxFuture<'a, Result<MysqldAnswer, ConversionFailure>>;

    /// Makes a member bootstrap the ring, with a log after these transactions.
    ///
    /// # Errors
    /// As [`Self::order`].
    fn bootstrap<'a>(
        &'a self,
        member: &'a MemberPlace,
        origin: String,
        until: Instant,
    ) -> BoxFuture<'a, Result<(), ConversionFailure>>;

    /// Makes the last known leader transfer the leadership to this member, fit or not.
    ///
    /// # Errors
    /// As [`Self::order`].
    fn promote(&self, to: MemberId, until: Instant)
    -> BoxFuture<'_, Result<(), ConversionFailure>>;
}

/// The ring at one moment.
#[derive(Debug, Clone, Default)]
pub struct RingSeen {
    /// The leader with a quorum.
    pub leader: Option<MemberId>,
    /// Every configured member, then further members of the ring; each with its report, or why there is none.
    pub members: Vec<(MemberPlace, Result<MemberSaid, String>)>,
}

impl RingSeen {
    /// A member by its number.
    pub(super) fn place(&self, id: MemberId) -> Option<&MemberPlace> {
        let mut places = self.members.iter().map(|(place, _)| place);
        places.find(|place| place.id == id)
    }
}

/// A member and its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberPlace {
    /// The member's number, unique in the ring.
    pub id: MemberId,
    /// The member's name, unique in the ring.
    pub name: String,
    /// Database member or witness.
    pub kind: MemberKind,
    /// Its `HOST:PORT`.
    pub address: String,
}

/// A member's report, as far as a conversion needs it.
#[derive(Debug, Clone)]
pub struct MemberSaid {
    /// The ring that it belongs to, or is bootstrapping.
    pub ring: Option<RingId>,
    /// Whether clients may write to its mysqld, or why not.
    pub primary: Answer,
    /// Its mysqld, once it takes part in its ring.
    pub mysql: Option<MysqlView>,
}

impl MemberSaid {
    /// The report in its view.
    pub fn of(view: &MemberView) -> Self {
        Self {
            ring: view.ring.id,
            primary: answer(Question::Primary, view),
            mysql: view.mysql.clone(),
        }
    }

    /// Whether its mysqld follows the ring, or has no applier.
    ///
    /// # Errors
    /// The reason, as text.
    pub(super) fn follows(&self) -> Result<(), String> {
        match &self.mysql {
            None => Err("its mysqld is not managed yet".to_owned()),
            Some(mysql) if mysql.following || !mysql.applies => Ok(()),
            Some(mysql) => Err((mysql.trouble.clone()).unwrap_or_else(|| mysql.role.to_string())),
        }
    }
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
