//! `witness disable-raft`: restores plain MySQL replication, without moving the primary.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use mysql_link::{ConnectOptions, Connection, Endpoint, LinkError, Secret, TlsMode};
use mysqld_controller::conversion::{
    DetachScene, DetachServer, DetachStep, Obstacle, Planned, plan_detach,
};
use mysqld_server::conversion::steps;
use mysqld_server::{ReplicationSource, SourceTls};
use uuid::Uuid;

use crate::conversion::course::{Course, Work, WritePause};
use crate::conversion::scene::{Everybody, acts, look_of, seen};
use crate::conversion::{Conversion, ConversionFailure, FailureKind, MemberSaid, StockReplica};
use crate::protocol::{MysqldAnswer, MysqldOrder, ReplicateFrom};

/// Address and login of the primary for the replicas.
#[derive(Debug, Clone, Default)]
pub struct ReplicationAccount {
    /// Host and port of the primary; by default the host of its member's address, and mysqld's port.
    pub source: Option<(String, u16)>,
    /// User and password at the primary; required as soon as there is a replica.
    pub login: Option<(String, Secret)>,
}

impl ReplicationAccount {
    /// Why no replica can log in with it. The member's own account is unsuitable: it has all rights, and every replica would store its
    /// password in clear text.
    fn obstacle(&self, primary: &str, of_the_member: &str) -> Option<Obstacle> {
        let what = match &self.login {
            None => "its replicas need an account there".to_owned(),
            Some((user, _)) if user == of_the_member => {
                format!("`{user}` is the account of its member, which has all rights")
            }
            Some(_) => return None,
        };
        Some(Obstacle::new(
            primary,
            what,
            "CREATE USER replication IDENTIFIED BY '…' REQUIRE SSL; GRANT REPLICATION SLAVE ON *.* TO replication; then name it with \
             --replication-user and --replication-password-file",
        ))
    }
}

/// A run of the command.
pub struct Detaching<'a> {
    conversion: &'a Conversion<'a>,
    everybody: Everybody,
    account: ReplicationAccount,
    pause: Option<Duration>,
}

impl<'a> Detaching<'a> {
    /// Checks all servers, and plans.
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
        let replicates = |planned: &Planned<DetachStep>| {
            !planned.done && matches!(planned.step, DetachStep::Replicate(_))
        };
        let planned = match planned {
            Ok(steps) if steps.iter().any(replicates) => match detaching.no_login().await? {
                Some(obstacle) => Err(vec![obstacle]),
                None => Ok(steps),
            },
            planned => planned,
        };
        Course::new(planned, Vec::new(), detaching)
    }

    /// Why the replicas could not log in at the primary, which would leave it without replicas after its release.
    async fn no_login(&self) -> Result<Option<Obstacle>, ConversionFailure> {
        let conversion = self.conversion;
        let own_account = &conversion.connect.user;
        if let Some(obstacle) = self.account.obstacle(&conversion.name, own_account) {
            return Ok(Some(obstacle));
        }
        let SourceTls::Verified { ca_file, identity } = &conversion.source_tls else {
            return Ok(None);
        };
        let primary = self.primary().await?;
        let (user, password) = self.account.login.clone().unwrap_or_default();
        let mut connect =
            ConnectOptions::new(Endpoint::tcp(&primary.host, primary.port), user, password);
        connect.tls.ca_file = Some(ca_file.clone());
        connect.tls.mode = match identity {
            true => TlsMode::VerifyIdentity,
            false => TlsMode::VerifyCa,
        };
        let error = match Connection::open(&connect).await {
            Err(error @ (LinkError::Tls { .. } | LinkError::TlsNotOffered { .. })) => error,
            // The account may be restricted to the replicas' hosts.
            _ => return Ok(None),
        };
        Ok(Some(Obstacle::new(
            &conversion.name,
            format!("its replicas could not verify its mysqld: {error}"),
            format!(
                "give it a certificate for {} (ssl_cert, ssl_key) of the CA in {}, as the member's own is; or name the CA of the mysqlds in \
                 mysql.tls_ca_file, with mysql.tls = \"verify_ca\" where their certificates carry no host",
                primary.host,
                ca_file.display()
            ),
        )))
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
    /// The ring provides what the primary's binlog no longer holds; the release waits for that.
    async fn manage_again(&self, name: &str) -> Result<(), ConversionFailure> {
        let (conversion, place) = (self.conversion, self.everybody.place(name)?);
        conversion.order(place, MysqldOrder::Manage).await?;
        conversion.until_said(place, MemberSaid::follows).await
    }

    /// A follower is released once it follows and has the primary's current transactions: then it lacks little, and has none that the
    /// primary lacks.
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

    /// The only step that clients notice.
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

    /// Released followers can replicate from the primary. If the ring had another leader since, the primary has purged later transactions;
    /// the next run's plan manages those followers again.
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

    /// The primary's address, and whether it uses TLS.
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
            user: self.account.login.as_ref().map(|(user, _)| user.clone()),
            password: self
                .account
                .login
                .as_ref()
                .map(|(_, password)| password.reveal().to_string()),
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
        let (user, password) = self
            .account
            .login
            .clone()
            .ok_or_else(|| ConversionFailure::error("no replication account is named"))?;
        let source = ReplicationSource {
            host: from.host,
            port: from.port,
            user,
            password,
            tls: stock.source_tls(from.tls)?,
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
