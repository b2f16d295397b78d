//! `witness enable-raft`: takes a running primary and its replicas into a ring.

use std::time::Duration;

use binlog_format::gtid::GtidSet;
use futures::FutureExt;
use futures::future::BoxFuture;
use mysqld_controller::conversion::{
    EnableScene, EnableServer, EnableStep, Obstacle, Planned, plan_enable,
};
use mysqld_server::conversion::{ReplicatesFrom, steps};

use crate::conversion::course::{Course, Work, WritePause};
use crate::conversion::scene::{Everybody, look_of, seen};
use crate::conversion::{Conversion, ConversionFailure, FailureKind, MemberSaid};
use crate::protocol::{MysqldAnswer, MysqldOrder};

/// A run of the command.
pub struct Enabling<'a> {
    conversion: &'a Conversion<'a>,
    everybody: Everybody,
    scene: EnableScene,
    pause: Option<Duration>,
}

impl<'a> Enabling<'a> {
    /// Checks all servers, and plans. Replicas without a member will follow the binlog server, where configured.
    ///
    /// # Errors
    /// When a member does not answer.
    pub async fn course(
        conversion: &'a Conversion<'a>,
        binlog_server: Option<(String, u16)>,
    ) -> Result<Course<Self>, ConversionFailure> {
        let everybody = conversion.everybody().await?;
        let scene = scene(conversion, &everybody, binlog_server);
        let planned = plan(conversion, &everybody, &scene);
        let remarks = remarks(&scene, &everybody);
        let enabling = Self {
            conversion,
            everybody,
            scene,
            pause: None,
        };
        Course::new(planned, remarks, enabling)
    }
}

fn scene(
    conversion: &Conversion<'_>,
    everybody: &Everybody,
    binlog_server: Option<(String, u16)>,
) -> EnableScene {
    let server = |name: &str, answer: &Result<MysqldAnswer, String>| EnableServer {
        name: name.to_owned(),
        look: answer.clone().and_then(look_of),
        unmanaged: answer.as_ref().is_ok_and(|answer| answer.unmanaged),
        managed: answer.as_ref().is_ok_and(|answer| answer.managed),
        was_primary: answer.as_ref().is_ok_and(|answer| answer.was_primary),
        follows: everybody.follows(name),
    };
    let others = everybody.others.iter();
    let own = &everybody.own;
    let origin = own.ring.and_then(|_| own.origin.parse::<GtidSet>().ok());
    EnableScene {
        primary: server(&conversion.name, &Ok(own.clone())),
        others: others
            .map(|(place, answer)| server(&place.name, answer))
            .collect(),
        stock: everybody.stock.clone(),
        binlog_server: binlog_server.filter(|_| conversion.binlog_account.is_some()),
        origin,
        leads: everybody.leads(),
    }
}

/// The plan, from the members' rings.
fn plan(
    conversion: &Conversion<'_>,
    everybody: &Everybody,
    scene: &EnableScene,
) -> Result<Vec<Planned<EnableStep>>, Vec<Obstacle>> {
    let planned = plan_enable(scene);
    let own = everybody.own.ring;
    let mut foreign: Vec<Obstacle> = everybody
        .said_by_others(conversion.own)
        .filter_map(|(place, said)| {
            let ring = said.ring?;
            (Some(ring) != own && own.is_some()).then(|| {
                Obstacle::new(
                    &place.name,
                    format!("it belongs to ring {ring} already"),
                    "start it with an empty data directory, and do not bootstrap it",
                )
            })
        })
        .collect();
    if foreign.is_empty() {
        return planned;
    }
    foreign.extend(planned.err().unwrap_or_default());
    Err(foreign)
}

fn remarks(scene: &EnableScene, everybody: &Everybody) -> Vec<String> {
    let mut remarks = everybody.clocks();
    if let Ok(look) = &scene.primary.look
        && !look.to_be_set.is_empty()
        && !scene.primary.managed
    {
        remarks.push(format!(
            "the member will set at the primary: {}",
            look.to_be_set.join("; ")
        ));
        let format = |found: &String| found.starts_with("binlog_format");
        if look.to_be_set.iter().any(format) {
            remarks.push(
                "sessions that began before binlog_format was ROW are closed when the primary is set up: they log statements"
                    .to_owned(),
            );
        }
    }
    for server in std::iter::once(&scene.primary).chain(&scene.others) {
        if let Ok(look) = &server.look
            && !look.to_be_reset.is_empty()
            && !server.managed
        {
            remarks.push(format!(
                "the member will run RESET PERSIST at {}, since its next start would be open for writes or commit without the ring: {}",
                server.name,
                look.to_be_reset.join("; ")
            ));
        }
    }
    if let Ok(look) = &scene.primary.look
        && look.waits_for_acks
        && !scene.primary.managed
    {
        remarks.push(
            "during the takeover semi-sync is off, so commits wait for no acknowledgement"
                .to_owned(),
        );
    }
    for (address, seen) in &scene.stock {
        if let Ok(seen) = seen
            && !seen.leaves_out.is_empty()
        {
            remarks.push(format!(
                "{address} leaves transactions out ({}): it follows as it is, and no member's data may be made from it",
                seen.leaves_out.join(", ")
            ));
        }
    }
    remarks
}

impl Work for Enabling<'_> {
    type Step = EnableStep;

    fn conversion(&self) -> &Conversion<'_> {
        self.conversion
    }

    fn carry_out<'a>(
        &'a mut self,
        step: &'a EnableStep,
    ) -> BoxFuture<'a, Result<(), ConversionFailure>> {
        async move {
            let own = self.conversion.name.as_str();
            match step {
                EnableStep::StopManaging(name) => {
                    self.order(name, MysqldOrder::StayUnmanaged).await
                }
                EnableStep::CreateRing => self.create_ring().await,
                EnableStep::Lead => self.lead().await,
                EnableStep::Prepare => self.order(own, MysqldOrder::Prepare).await,
                EnableStep::StopWaiting => self.order(own, MysqldOrder::StopWaiting).await,
                EnableStep::StopAcknowledging(place) => self.stop_acknowledging(place).await,
                EnableStep::LeaveSource(name) => self.leave_source(name).await,
                EnableStep::TakeOver => self.take_over().await,
                EnableStep::Follow(name) => self.follow(name).await,
                EnableStep::Repoint(address) => self.repoint(address).await,
            }
        }
        .boxed()
    }

    fn write_pause(&self) -> Option<Duration> {
        self.pause
    }
}

impl Enabling<'_> {
    async fn order(&self, name: &str, order: MysqldOrder) -> Result<(), ConversionFailure> {
        let place = self.everybody.place(name)?;
        self.conversion.order(place, order).await?;
        Ok(())
    }

    async fn create_ring(&self) -> Result<(), ConversionFailure> {
        let (conversion, own) = (self.conversion, &self.everybody.own_place);
        let look = seen(&own.name, conversion.look(own).await?)?;
        conversion.bootstrap(own, look.executed).await
    }

    async fn lead(&self) -> Result<(), ConversionFailure> {
        let conversion = self.conversion;
        let own = conversion.own;
        loop {
            let ring = conversion.members.ring().await;
            match ring.leader {
                Some(leader) if leader == own => return Ok(()),
                Some(_) => {
                    // Refused while the ring is forming; retried until the time is over.
                    let promoted = conversion.members.promote(own, conversion.until);
                    if let Err(failure) = promoted.await {
                        conversion.wait("the ring", &failure.what).await?;
                    }
                }
                None => conversion.wait("the ring", "it has no leader yet").await?,
            }
        }
    }

    async fn stop_acknowledging(&self, place: &str) -> Result<(), ConversionFailure> {
        match self.conversion.stock_replica(place) {
            None => self.order(place, MysqldOrder::StopAcknowledging).await,
            Some(stock) => {
                let stopped = steps::stop_acknowledging(&stock.connect).await;
                stopped.map_err(|error| ConversionFailure::error(error.to_string()))
            }
        }
    }

    /// The only step that clients notice.
    async fn take_over(&mut self) -> Result<(), ConversionFailure> {
        let conversion = self.conversion;
        let own = &self.everybody.own_place;
        let watch = WritePause::watch(&conversion.connect).await;
        let watch = watch.map_err(|error| ConversionFailure::error(error.to_string()))?;
        self.lead().await?;
        conversion.order(own, MysqldOrder::TakeOver).await?;
        self.taken_over().await?;
        let primary = conversion.until_said(own, |said| {
            said.primary.clone().map_err(|why| why.to_string())
        });
        primary.await?;
        self.pause = watch.end().await;
        Ok(())
    }

    /// Waits until the ring has all of the primary's transactions: until then its member may give it back.
    async fn taken_over(&self) -> Result<(), ConversionFailure> {
        let (conversion, own) = (self.conversion, &self.everybody.own_place);
        loop {
            let answer = conversion.look(own).await?;
            if !answer.unmanaged {
                return Ok(());
            }
            if !answer.managed {
                return Err(ConversionFailure::new(
                    FailureKind::Refused,
                    format!(
                        "`{}` gave its mysqld back before the ring had all of its transactions",
                        own.name
                    ),
                    "nothing is lost; see in the member's log why, start mysqld if it has ended, and run enable-raft again",
                ));
            }
            let why = "the ring does not have all of its transactions yet";
            conversion.wait(&own.name, why).await?;
        }
    }

    async fn leave_source(&self, name: &str) -> Result<(), ConversionFailure> {
        let (conversion, place) = (self.conversion, self.everybody.place(name)?);
        // Transactions missing in the ring's log are only available from the primary.
        let origin = self.origin().await?;
        conversion.until_executed(place, &origin).await?;
        conversion.order(place, MysqldOrder::LeaveSource).await?;
        Ok(())
    }

    async fn follow(&self, name: &str) -> Result<(), ConversionFailure> {
        let conversion = self.conversion;
        let (own, place) = (&self.everybody.own_place, self.everybody.place(name)?);
        // Transactions received from the primary before the ring acknowledged them are committed soon.
        let executed = conversion.executed(place).await?;
        conversion.until_executed(own, &executed).await?;
        conversion.order(place, MysqldOrder::Manage).await?;
        conversion.until_said(place, MemberSaid::follows).await
    }

    async fn origin(&self) -> Result<GtidSet, ConversionFailure> {
        if let Some(origin) = &self.scene.origin {
            return Ok(origin.clone());
        }
        let answer = self.conversion.look(&self.everybody.own_place).await?;
        answer.origin.parse().map_err(|error| {
            ConversionFailure::error(format!(
                "the origin of the ring's log cannot be read: {error}"
            ))
        })
    }

    async fn repoint(&self, address: &str) -> Result<(), ConversionFailure> {
        let conversion = self.conversion;
        let stock = conversion.stock_replica(address);
        let account = conversion.binlog_account.as_ref();
        let (Some(stock), Some(account), Some(server)) =
            (stock, account, &self.scene.binlog_server)
        else {
            return Err(ConversionFailure::new(
                FailureKind::Refused,
                "there is no binlog server that it could follow",
                "give --binlog-server",
            ));
        };
        let origin = self.origin().await?;
        loop {
            let look = stock.look().await.map_err(ConversionFailure::error)?;
            let executed = look.executed().unwrap_or_default();
            if executed.contains_set(&origin) {
                break;
            }
            conversion
                .wait(address, "it lacks transactions from before the ring")
                .await?;
        }
        let source = account.source(server, stock)?;
        let followed = steps::follow_source(&stock.connect, &source).await;
        followed.map_err(|error| ConversionFailure::error(error.to_string()))?;
        loop {
            let look = stock.look().await.map_err(ConversionFailure::error)?;
            let running = |channel: &ReplicatesFrom| channel.receives && channel.applies;
            if look.replicates_from.iter().any(running) {
                return Ok(());
            }
            let error = look.replicates_from.iter().map(|from| from.error.as_str());
            conversion.wait(address, &error.collect::<String>()).await?;
        }
    }
}
