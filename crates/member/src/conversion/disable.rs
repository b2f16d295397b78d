//! `witness disable-raft`: gives plain MySQL replication back, with the primary where it is.

use std::path::PathBuf;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use mysql_link::Secret;
use mysqld_controller::ReplicationSource;
use mysqld_controller::conversion::{DetachScene, DetachServer, DetachStep, plan_detach, steps};
use uuid::Uuid;

use crate::conversion::course::{Course, Work};
use crate::conversion::scene::{Everybody, acts, look_of, seen};
use crate::conversion::write_pause::WritePause;
use crate::conversion::{Conversion, ConversionFailure, FailureKind, MemberSaid, StockReplica};
use crate::protocol::{MysqldAnswer, MysqldOrder, ReplicateFrom};
use crate::settings::PasswordSource;

/// Where the replicas find the primary, and as whom they log in.
#[derive(Debug, Clone, Default)]
pub struct ReplicationAccount {
    /// Host and port of the primary; without them the host of its member's address, and mysqld's port.
    pub source: Option<(String, u16)>,
    /// The account at the primary; without it each member's own.
    pub user: Option<String>,
    /// The file, on every member's host, whose first line is that account's password.
    pub password_file: Option<PathBuf>,
}

/// A run of it.
pub struct Detaching<'a> {
    conversion: &'a Conversion<'a>,
    everybody: Everybody,
    account: ReplicationAccount,
    pause: Option<Duration>,
}

impl<'a> Detaching<'a> {
    /// Looks at everybody, and plans.
    ///
    /// # Errors
    /// When a member does not answer.
    pub async fn course(
        conversion: &'a Conversion<'a>,
        account: ReplicationAccount,
    ) -> Result<Course<Self>, ConversionFailure> {
        let everybody = conversion.everybody().await?;
        let planned = plan_detach(&scene(conversion, &everybody));
        let detaching = Self {
            conversion,
            everybody,
            account,
            pause: None,
        };
        Course::new(planned, Vec::new(), detaching)
    }
}

fn scene(conversion: &Conversion<'_>, everybody: &Everybody) -> DetachScene {
    let server = |name: &str, answer: &Result<MysqldAnswer, String>| DetachServer {
        name: name.to_owned(),
        look: answer.clone().and_then(look_of),
        managed: answer.as_ref().is_ok_and(acts),
    };
    let others = everybody.others.iter();
    DetachScene {
        primary: server(&conversion.name, &Ok(everybody.own.clone())),
        leads: everybody.leads(),
        others: others
            .map(|(place, answer)| server(&place.name, answer))
            .collect(),
        stock: everybody.stock.clone(),
    }
}

impl Work for Detaching<'_> {
    type Step = DetachStep;

    fn conversion(&self) -> &Conversion<'_> {
        self.conversion
    }

    fn carry_out<'a>(
        &'a mut self,
        step: &'a DetachStep,
    ) -> BoxFuture<'a, Result<(), ConversionFailure>> {
        async move {
            match step {
                DetachStep::ManageAgain(name) => self.manage_again(name).await,
                DetachStep::StopManaging(name) => self.let_go(name).await,
                DetachStep::Release => self.release().await,
                DetachStep::Replicate(place) => match self.conversion.stock_replica(place) {
                    Some(stock) => self.stock_replicates(stock).await,
                    None => self.replicates(place).await,
                },
            }
        }
        .boxed()
    }

    fn write_pause(&self) -> Option<Duration> {
        self.pause
    }
}

impl Detaching<'_> {
    /// It gets from the ring what the primary's binlog does not hold any more; letting it go waits for that.
    async fn manage_again(&self, name: &str) -> Result<(), ConversionFailure> {
        let (conversion, place) = (self.conversion, self.everybody.place(name)?);
        conversion.order(place, MysqldOrder::Manage).await?;
        conversion.until_said(place, MemberSaid::follows).await
    }

    /// A follower is let go once it follows and has what the primary has now, so that it lacks little meanwhile, and has nothing that
    /// the primary has not.
    async fn let_go(&self, name: &str) -> Result<(), ConversionFailure> {
        let conversion = self.conversion;
        let (own, place) = (&self.everybody.own_place, self.everybody.place(name)?);
        if self.everybody.manages(place) {
            conversion.until_said(place, MemberSaid::follows).await?;
        }
        let executed = conversion.executed(own).await?;
        conversion.until_executed(place, &executed).await?;
        let order = conversion.order(place, MysqldOrder::ReleaseFollower);
        order.await?;
        Ok(())
    }

    /// The one step that clients notice.
    async fn release(&mut self) -> Result<(), ConversionFailure> {
        let (conversion, own) = (self.conversion, &self.everybody.own_place);
        self.nobody_lacks_what_is_purged().await?;
        let watch = WritePause::watch(&conversion.connect).await;
        let watch = watch.map_err(|error| ConversionFailure::error(error.to_string()))?;
        let order = conversion.order(own, MysqldOrder::ReleasePrimary);
        order.await?;
        self.pause = watch.end().await;
        Ok(())
    }

    /// Followers that were let go can replicate from the primary. Where the ring had another leader since, the primary has purged what
    /// came meanwhile; the plan of the next run has them managed again.
    async fn nobody_lacks_what_is_purged(&self) -> Result<(), ConversionFailure> {
        let (conversion, own) = (self.conversion, &self.everybody.own_place);
        let look = seen(&own.name, conversion.look(own).await?)?;
        let purged = look.purged().unwrap_or_default();
        for (place, _) in &self.everybody.others {
            let lacks = purged.difference(&conversion.executed(place).await?);
            if !lacks.is_empty() {
                return Err(ConversionFailure::new(
                    FailureKind::Refused,
                    format!(
                        "`{}` lacks {lacks}, which the primary has purged since",
                        place.name
                    ),
                    "run disable-raft again: it manages that server again, until it has caught up",
                ));
            }
        }
        Ok(())
    }

    /// Where the primary is reached, and whether over TLS.
    async fn primary(&self) -> Result<ReplicateFrom, ConversionFailure> {
        let own = &self.everybody.own_place;
        let look = seen(&own.name, self.conversion.look(own).await?)?;
        let (host, port) = match &self.account.source {
            Some(source) => source.clone(),
            None => (host_of(&own.address)?, look.port),
        };
        Ok(ReplicateFrom {
            host,
            port,
            tls: look.tls,
            user: self.account.user.clone(),
            password_file: self.account.password_file.clone(),
        })
    }

    async fn replicates(&self, name: &str) -> Result<(), ConversionFailure> {
        let conversion = self.conversion;
        let place = self.everybody.place(name)?;
        let order = MysqldOrder::Replicate(self.primary().await?);
        conversion.order(place, order).await?;
        loop {
            let look = seen(name, conversion.look(place).await?)?;
            if look.follows(self.primary_uuid()) {
                return Ok(());
            }
            let errors = look.replicates_from.iter().map(|from| from.error.as_str());
            conversion.wait(name, &errors.collect::<String>()).await?;
        }
    }

    fn primary_uuid(&self) -> Option<Uuid> {
        self.everybody.own.look.as_ref()?.uuid
    }

    async fn stock_replicates(&self, stock: &StockReplica) -> Result<(), ConversionFailure> {
        let from = self.primary().await?;
        let account = &self.conversion.connect;
        let password = match &self.account.password_file {
            None => account.password.clone(),
            Some(file) => {
                let read = PasswordSource::File(file.clone()).read();
                Secret::new(read.map_err(|error| {
                    ConversionFailure::error(format!("{} cannot be read: {error}", file.display()))
                })?)
            }
        };
        let source = ReplicationSource {
            host: from.host,
            port: from.port,
            user: from.user.unwrap_or_else(|| account.user.clone()),
            password,
            tls: from.tls,
        };
        let followed = steps::follow_source(&stock.connect, &source).await;
        followed.map_err(|error| ConversionFailure::error(error.to_string()))?;
        loop {
            let look = stock.look().await.map_err(ConversionFailure::error)?;
            if look.follows(self.primary_uuid()) {
                return Ok(());
            }
            let errors = look.replicates_from.iter().map(|from| from.error.as_str());
            let why = errors.collect::<String>();
            self.conversion.wait(&stock.address, &why).await?;
        }
    }
}

/// The host of a member's address, which has a port.
fn host_of(address: &str) -> Result<String, ConversionFailure> {
    let host = address.rsplit_once(':').map(|(host, _)| host);
    let host = host.filter(|host| !host.is_empty()).ok_or_else(|| {
        ConversionFailure::new(
            FailureKind::Usage,
            format!("`{address}` is no HOST:PORT"),
            "for example 10.0.0.7:3306",
        )
    })?;
    Ok(host.to_owned())
}
