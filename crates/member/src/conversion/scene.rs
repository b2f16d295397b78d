//! Checks of the servers, orders to their members, and waits: the parts of a run that use the network.

use std::fmt::Display;
use std::time::Duration;

use futures::future::BoxFuture;
use mysql_link::Secret;
use mysqld_server::conversion::{ServerLook, look, steps};
use mysqld_server::settings::Requirements;
use mysqld_server::{ReplicationSource, SourceTls};
use raft_types::{MemberId, MemberKind};
use tokio::time::Instant;
use uuid::Uuid;

use crate::conversion::plan::{Scene, Server};
use crate::conversion::{Conversion, StockReplica, failed};
use crate::protocol::{MysqldAnswer, MysqldOrder, Refusal, RefusalKind, source_tls};
use crate::status::{Answer, MemberView, NotReady, start_advice};

/// Interval between checks.
const LOOK: Duration = Duration::from_millis(50);
/// Time limit of one order.
const ORDER_LIMIT: Duration = Duration::from_secs(60);

impl Conversion<'_> {
    /// Checks all servers. The primary is the last one, so it has all transactions that the others received from it. Also returns the
    /// addresses of all members.
    ///
    /// # Errors
    /// If a member does not answer.
    pub(super) async fn scene(&self) -> Result<(Scene, Vec<MemberPlace>), Refusal> {
        let ring = self.members.ring().await;
        let mut rings = Vec::new();
        let mut answering = Vec::new();
        for (place, said) in &ring.members {
            let said = said.as_ref().map_err(|silence| {
                let (name, command) = (&place.name, self.direction.name());
                let what = format!("`{name}` does not answer: {}", silence.what);
                let start = start_advice(name);
                let advice = format!("{start}, and do not bootstrap it; then run {command} again");
                Refusal::new(RefusalKind::NoQuorum, what, advice)
            })?;
            if place.id != self.own {
                rings.extend(said.ring.id.map(|ring| (place.name.clone(), ring)));
            }
            answering.push((place.clone(), follows(said).is_ok()));
        }
        // Members are sorted by number, so that the order of the plan does not depend on the configuration.
        answering.sort_by_key(|(place, _)| place.id);
        let mut others = Vec::new();
        for (place, follows) in &answering {
            if place.kind == MemberKind::Database && place.id != self.own {
                let seen = self.order(place, MysqldOrder::Look).await;
                others.push(Server {
                    name: place.name.clone(),
                    seen: seen.unwrap_or_else(|failure| not_seen(failure.what)),
                    follows: *follows,
                });
            }
        }
        let mut stock = Vec::new();
        for replica in &self.stock {
            let seen = match replica.look().await {
                Ok(look) => MysqldAnswer {
                    look: Some(look),
                    ..MysqldAnswer::default()
                },
                Err(failure) => not_seen(failure.what),
            };
            stock.push(Server {
                name: replica.address.clone(),
                seen,
                follows: false,
            });
        }
        let own = answering.iter().find(|(place, _)| place.id == self.own);
        let (own, follows) = own.ok_or_else(|| {
            failed("the member of this configuration is not in its own list of members")
        })?;
        let scene = Scene {
            primary: Server {
                name: self.name.clone(),
                seen: self.order(own, MysqldOrder::Look).await?,
                follows: *follows,
            },
            others,
            stock,
            leads: ring.leader == Some(self.own),
            rings,
            binlog_server: self.binlog_server.clone().map(|(address, _)| address),
        };
        Ok((
            scene,
            answering.into_iter().map(|(place, _)| place).collect(),
        ))
    }

    /// Sends an order to a member.
    ///
    /// # Errors
    /// The member's refusal, or the kind `Unknown` if the result is unknown.
    pub(super) async fn order(
        &self,
        place: &MemberPlace,
        order: MysqldOrder,
    ) -> Result<MysqldAnswer, Refusal> {
        let ordered = self.members.order(place, order, self.order_until()).await;
        ordered.map_err(|refusal| of_member(place, refusal))
    }

    /// Makes a member bootstrap the ring.
    ///
    /// # Errors
    /// As [`Self::order`].
    pub(super) async fn bootstrap(
        &self,
        place: &MemberPlace,
        origin: String,
    ) -> Result<(), Refusal> {
        let made = self.members.bootstrap(place, origin, self.order_until());
        made.await.map_err(|refusal| of_member(place, refusal))
    }

    fn order_until(&self) -> Instant {
        self.until.min(Instant::now() + ORDER_LIMIT)
    }

    /// Waits until `wanted` accepts a member's report.
    ///
    /// # Errors
    /// The kind `Unknown` at the deadline, with the last report.
    pub(super) async fn until_said(
        &self,
        place: &MemberPlace,
        wanted: fn(&MemberView) -> Answer,
    ) -> Result<(), Refusal> {
        loop {
            let ring = self.members.ring().await;
            let mut members = ring.members.iter();
            let said = members.find(|(seen, _)| seen.id == place.id);
            match said.and_then(|(_, said)| said.as_ref().ok()).map(wanted) {
                Some(Ok(())) => return Ok(()),
                Some(Err(why)) => self.wait(&place.name, &why).await?,
                None => self.wait(&place.name, &"it does not answer").await?,
            }
        }
    }

    /// Waits before the next check.
    ///
    /// # Errors
    /// The kind `Unknown` after the deadline.
    pub(super) async fn wait(
        &self,
        place: &str,
        why: &(dyn Display + Sync),
    ) -> Result<(), Refusal> {
        if Instant::now() >= self.until {
            let command = self.direction.name();
            let what = format!("`{place}` was not ready in time: {why}");
            let advice =
                format!("fix that, and run {command} again: it continues where it stopped");
            return Err(Refusal::new(RefusalKind::Unknown, what, advice));
        }
        tokio::time::sleep(LOOK).await;
        Ok(())
    }
}

fn of_member(place: &MemberPlace, mut refusal: Refusal) -> Refusal {
    refusal.what = format!("`{}`: {}", place.name, refusal.what);
    refusal
}

fn not_seen(why: String) -> MysqldAnswer {
    MysqldAnswer {
        unseen: Some(why),
        ..MysqldAnswer::default()
    }
}

impl StockReplica {
    /// Checks the replica.
    ///
    /// # Errors
    /// If it cannot be checked.
    pub(super) async fn look(&self) -> Result<ServerLook, Refusal> {
        // No member attaches to the replica, so the identity does not matter.
        let requirements = Requirements::new(u32::MAX, Uuid::nil());
        let seen = look(&self.connect, &requirements).await;
        seen.map_err(failed)
    }

    /// Makes the replica replicate from this source, with this user and password. The source offers TLS or not.
    ///
    /// # Errors
    /// If the replica refuses, or cannot verify the source.
    pub(super) async fn follow(
        &self,
        host: &str,
        port: u16,
        (user, password): (String, Secret),
        offers_tls: bool,
    ) -> Result<(), Refusal> {
        let verify = self.ca_file.clone().map(|ca_file| SourceTls::Verified {
            ca_file,
            identity: true,
        });
        let source = ReplicationSource {
            host: host.to_owned(),
            port,
            user,
            password,
            tls: source_tls(verify, offers_tls)?,
        };
        let followed = steps::follow_source(&self.connect, &source).await;
        followed.map_err(failed)
    }
}

// A conversion's interface to members.

/// The configured members, as a run calls them.
pub trait ConversionMembers: Send + Sync {
    /// Returns the ring, as the members report it now.
    fn ring(&self) -> BoxFuture<'_, RingSeen>;

    /// Makes a member act on its mysqld, or check it.
    ///
    /// # Errors
    /// The member's refusal, in the words of the caller, or that the result is unknown.
    fn order<'a>(
        &'a self,
        member: &'a MemberPlace,
        order: MysqldOrder,
        until: Instant,
    ) -> BoxFuture<'a, Result<MysqldAnswer, Refusal>>;

    /// Makes a member bootstrap the ring, with a log that begins after these transactions.
    ///
    /// # Errors
    /// As [`Self::order`].
    fn bootstrap<'a>(
        &'a self,
        member: &'a MemberPlace,
        origin: String,
        until: Instant,
    ) -> BoxFuture<'a, Result<(), Refusal>>;

    /// Makes the last known leader transfer the leadership to this member, even if its mysqld is not fit.
    ///
    /// # Errors
    /// As [`Self::order`].
    fn promote(&self, to: MemberId, until: Instant) -> BoxFuture<'_, Result<(), Refusal>>;
}

/// The ring at one moment.
#[derive(Debug, Clone, Default)]
pub struct RingSeen {
    /// The leader with a quorum.
    pub leader: Option<MemberId>,
    /// Every configured member, then other members of the ring. Each one has its report, or the reason why there is none.
    pub members: Vec<(MemberPlace, Result<MemberView, Refusal>)>,
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

/// Returns without an error if a member's mysqld follows the ring, or nothing is applied to it.
///
/// # Errors
/// The reason.
pub(super) fn follows(view: &MemberView) -> Answer {
    let why = match &view.mysql {
        None => "it is not managed yet".to_owned(),
        Some(mysql) if mysql.following || !mysql.applies => return Ok(()),
        Some(mysql) => (mysql.trouble.clone()).unwrap_or_else(|| mysql.role.to_string()),
    };
    Err(NotReady::NotFollowing(why))
}
