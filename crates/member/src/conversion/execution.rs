//! Executes each step: orders to the members, statements at replicas without a member, and waits for the results.

use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, Connection, Endpoint, LinkError, Secret, TlsMode};
use mysqld_server::SourceTls;
use mysqld_server::conversion::{ReplicatesFrom, ServerLook, steps};
use raft_types::host_and_port;

use crate::conversion::course::{Course, WritePause};
use crate::conversion::plan::{Obstacle, Server, Step};
use crate::conversion::scene::follows;
use crate::conversion::{MemberPlace, failed};
use crate::protocol::{MysqldAnswer, MysqldOrder, Refusal, ReplicateFrom};
use crate::status::{Question, answer};

type Done = Result<(), Refusal>;

impl Course<'_> {
    /// Executes one step.
    ///
    /// # Errors
    /// If the step is not complete. It can be repeated.
    pub(super) async fn execute(&mut self, step: &Step) -> Done {
        let own = self.conversion.name.as_str();
        match step {
            Step::StayUnmanaged(name) => self.order(name, MysqldOrder::StayUnmanaged).await,
            Step::CreateRing => self.create_ring().await,
            Step::Lead => self.lead().await,
            Step::Prepare => self.order(own, MysqldOrder::Prepare).await,
            Step::StopWaiting => self.order(own, MysqldOrder::StopWaiting).await,
            Step::StopAcknowledging(name) => self.stop_acknowledging(name).await,
            Step::LeaveSource(name) => {
                // Transactions before the ring's log can only be replicated from the primary.
                self.until_executed(name, &self.origin().await?).await?;
                self.order(name, MysqldOrder::LeaveSource).await
            }
            Step::TakeOver => self.take_over().await,
            Step::Follow(name) => {
                // The follower may have received transactions from the primary before the ring acknowledged them. They are committed soon.
                self.until_executed(own, &self.executed(name).await?)
                    .await?;
                self.manage(name).await
            }
            Step::Repoint(address) => self.repoint(address).await,
            // The ring provides the transactions that the primary has purged. The release step then waits until the follower has them.
            Step::ManageAgain(name) => self.manage(name).await,
            Step::ReleaseFollower(name) => self.release_follower(name).await,
            Step::ReleasePrimary => self.release_primary().await,
            Step::Replicate(name) => self.replicate(name).await,
        }
    }

    fn place(&self, name: &str) -> Result<&MemberPlace, Refusal> {
        let place = self.places.iter().find(|place| place.name == name);
        place.ok_or_else(|| Refusal::refused(format!("the ring has no member `{name}`"), ""))
    }

    async fn order(&self, name: &str, order: MysqldOrder) -> Done {
        let ordered = self.conversion.order(self.place(name)?, order).await;
        ordered.map(drop)
    }

    async fn report(&self, name: &str) -> Result<MysqldAnswer, Refusal> {
        let place = self.place(name)?;
        self.conversion.order(place, MysqldOrder::Look).await
    }

    /// Checks a server.
    async fn look(&self, name: &str) -> Result<ServerLook, Refusal> {
        if let Some(stock) = self.conversion.stock_replica(name) {
            return stock.look().await;
        }
        let seen = self.report(name).await?;
        seen.look.ok_or_else(|| {
            let why = seen.unseen.unwrap_or_default();
            Refusal::failed(
                format!("the mysqld of `{name}` cannot be examined: {why}"),
                "start it, or fix [mysql] in that member's configuration",
            )
        })
    }

    async fn executed(&self, name: &str) -> Result<GtidSet, Refusal> {
        let executed = self.look(name).await?.executed();
        executed
            .map_err(|error| failed(format!("gtid_executed of `{name}` cannot be read: {error}")))
    }

    /// Waits until a server has executed all of these transactions.
    ///
    /// # Errors
    /// If the server cannot be checked, or lacks transactions at the deadline.
    async fn until_executed(&self, name: &str, wanted: &GtidSet) -> Done {
        loop {
            let lacks = wanted.difference(&self.executed(name).await?).count();
            if lacks == 0 {
                return Ok(());
            }
            let why = format!("it is {lacks} transactions behind");
            self.conversion.wait(name, &why).await?;
        }
    }

    /// Waits until `wanted` is true for a server's replication.
    ///
    /// # Errors
    /// As [`Self::until_executed`].
    async fn until_replicating(&self, name: &str, wanted: impl Fn(&ServerLook) -> bool) -> Done {
        loop {
            let look = self.look(name).await?;
            if wanted(&look) {
                return Ok(());
            }
            let why = look.replication_errors();
            self.conversion.wait(name, &why).await?;
        }
    }

    async fn manage(&self, name: &str) -> Done {
        self.order(name, MysqldOrder::Manage).await?;
        let place = self.place(name)?;
        self.conversion.until_said(place, follows).await
    }

    async fn create_ring(&self) -> Done {
        let own = &self.conversion.name;
        let look = self.look(own).await?;
        let place = self.place(own)?;
        self.conversion.bootstrap(place, look.executed).await
    }

    async fn lead(&self) -> Done {
        let conversion = self.conversion;
        let own = conversion.own;
        loop {
            let ring = conversion.members.ring().await;
            match ring.leader {
                Some(leader) if leader == own => return Ok(()),
                Some(_) => {
                    // The promotion is refused while the ring is being formed. It is repeated until the deadline.
                    let promoted = conversion.members.promote(own, conversion.until);
                    if let Err(failure) = promoted.await {
                        conversion.wait("the ring", &failure.what).await?;
                    }
                }
                None => conversion.wait("the ring", &"it has no leader yet").await?,
            }
        }
    }

    async fn stop_acknowledging(&self, name: &str) -> Done {
        match self.conversion.stock_replica(name) {
            None => self.order(name, MysqldOrder::StopAcknowledging).await,
            Some(stock) => {
                let stopped = steps::stop_acknowledging(&stock.connect).await;
                stopped.map_err(failed)
            }
        }
    }

    /// Takes over the primary. Of all steps into a ring, clients notice only this one.
    async fn take_over(&mut self) -> Done {
        let conversion = self.conversion;
        let watch = WritePause::watch(&conversion.connect).await?;
        self.lead().await?;
        self.order(&conversion.name, MysqldOrder::TakeOver).await?;
        self.taken_over().await?;
        let own = self.place(&conversion.name)?;
        let opened = conversion.until_said(own, |view| answer(Question::Primary, view));
        opened.await?;
        self.pause = watch.end().await;
        Ok(())
    }

    /// Waits until the ring has all of the primary's transactions. Before that, the primary's member may give up the takeover.
    async fn taken_over(&self) -> Done {
        let own = &self.conversion.name;
        loop {
            let answer = self.report(own).await?;
            if !answer.unmanaged {
                return Ok(());
            }
            if !answer.managed {
                return Err(Refusal::refused(
                    format!(
                        "`{own}` gave its mysqld back before the ring had all of its transactions"
                    ),
                    "nothing is lost; see in the member's log why, start mysqld if it has ended, and run enable-raft again",
                ));
            }
            let why = "the ring does not have all of its transactions yet";
            self.conversion.wait(own, &why).await?;
        }
    }

    async fn origin(&self) -> Result<GtidSet, Refusal> {
        if let Some(origin) = self.scene.origin() {
            return Ok(origin);
        }
        let answer = self.report(&self.conversion.name).await?;
        answer.origin.parse().map_err(|error| {
            failed(format!(
                "the origin of the ring's log cannot be read: {error}"
            ))
        })
    }

    async fn repoint(&self, address: &str) -> Done {
        let stock = self.conversion.stock_replica(address);
        let server = self.conversion.binlog_server.as_ref();
        let Some((stock, ((host, port), server))) = stock.zip(server) else {
            return Err(Refusal::refused(
                "there is no binlog server that it could follow",
                "give --binlog-server",
            ));
        };
        self.until_executed(address, &self.origin().await?).await?;
        let password = server.password.read().map_err(|error| {
            failed(format!(
                "the password of [binlog_server] cannot be read: {error}"
            ))
        })?;
        let login = (server.user.clone(), Secret::new(password));
        let offers_tls = server.certificate.is_some();
        stock.follow(host, *port, login, offers_tls).await?;
        let running = |channel: &ReplicatesFrom| channel.receives && channel.applies;
        let wanted = |look: &ServerLook| look.replicates_from.iter().any(running);
        self.until_replicating(address, wanted).await
    }

    /// Releases a follower after it has executed the primary's current transactions. It then lacks few transactions, and has none that the
    /// primary lacks.
    async fn release_follower(&self, name: &str) -> Done {
        let conversion = self.conversion;
        let is_managed = |server: &Server| server.name == name && server.is_or_will_be_managed();
        if self.scene.others.iter().any(is_managed) {
            let place = self.place(name)?;
            conversion.until_said(place, follows).await?;
        }
        let executed = self.executed(&conversion.name).await?;
        self.until_executed(name, &executed).await?;
        self.order(name, MysqldOrder::ReleaseFollower).await
    }

    /// Releases the primary. Of all steps out of a ring, clients notice only this one.
    async fn release_primary(&mut self) -> Done {
        let conversion = self.conversion;
        self.nobody_lacks_what_is_purged().await?;
        let watch = WritePause::watch(&conversion.connect).await?;
        let order = MysqldOrder::ReleasePrimary;
        self.order(&conversion.name, order).await?;
        self.pause = watch.end().await;
        Ok(())
    }

    /// Checks that released followers can replicate from the primary. If the ring had another leader since their release, the primary may
    /// have purged later transactions. The plan of the next run then manages those followers again.
    async fn nobody_lacks_what_is_purged(&self) -> Done {
        let look = self.look(&self.conversion.name).await?;
        let purged = look.purged().unwrap_or_default();
        for Server { name, .. } in &self.scene.others {
            let lacks = purged.difference(&self.executed(name).await?);
            if !lacks.is_empty() {
                return Err(Refusal::refused(
                    format!("`{name}` lacks {lacks}, which the primary has purged since"),
                    "run disable-raft again: it manages that server again, until it has caught up",
                ));
            }
        }
        Ok(())
    }

    /// Returns the primary's address and account for its replicas, and whether it offers TLS.
    async fn primary(&self) -> Result<ReplicateFrom, Refusal> {
        let own = &self.conversion.name;
        let account = &self.conversion.account;
        let look = self.look(own).await?;
        let (host, port) = match &account.source {
            Some(source) => source.clone(),
            None => {
                let address = host_and_port(&self.place(own)?.address);
                let (host, _) = address.map_err(|mistake| {
                    let advice = "for example 10.0.0.7:3306";
                    Refusal::failed(mistake.to_string(), advice)
                })?;
                (host.to_owned(), look.port)
            }
        };
        let login = account.login.as_ref();
        Ok(ReplicateFrom {
            host,
            port,
            tls: look.tls,
            user: login.map(|(user, _)| user.clone()),
            password: login.map(|(_, password)| password.reveal().to_string()),
        })
    }

    async fn replicate(&self, name: &str) -> Done {
        let from = self.primary().await?;
        match self.conversion.stock_replica(name) {
            None => self.order(name, MysqldOrder::Replicate(from)).await?,
            Some(stock) => {
                let login = self.conversion.account.login.clone();
                let login = login.ok_or_else(|| failed("no replication account is named"))?;
                stock.follow(&from.host, from.port, login, from.tls).await?;
            }
        }
        let primary = self.scene.primary.seen.look.as_ref();
        let primary = primary.and_then(|look| look.uuid);
        let wanted = |look: &ServerLook| look.follows(primary);
        self.until_replicating(name, wanted).await
    }

    /// Returns why the replicas could not log in at the primary. Without this check, the primary could be without replicas after its
    /// release.
    pub(super) async fn no_login(&self) -> Result<Option<Obstacle>, Refusal> {
        let conversion = self.conversion;
        let obstacle = |found, advice: String| Some(Obstacle::new(&conversion.name, found, advice));
        if let Some(found) = conversion.account.mistake(&conversion.connect.user) {
            let advice = "CREATE USER replication IDENTIFIED BY '…' REQUIRE SSL; GRANT REPLICATION SLAVE ON *.* TO replication; then \
                          name it with --replication-user and --replication-password-file";
            return Ok(obstacle(found, advice.to_owned()));
        }
        let SourceTls::Verified { ca_file, identity } = &conversion.source_tls else {
            return Ok(None);
        };
        let primary = self.primary().await?;
        let (user, password) = conversion.account.login.clone().unwrap_or_default();
        let mut connect =
            ConnectOptions::new(Endpoint::tcp(&primary.host, primary.port), user, password);
        connect.tls.ca_file = Some(ca_file.clone());
        connect.tls.mode = match identity {
            true => TlsMode::VerifyIdentity,
            false => TlsMode::VerifyCa,
        };
        let error = match Connection::open(&connect).await {
            Err(error @ (LinkError::Tls { .. } | LinkError::TlsNotOffered { .. })) => error,
            // The account may be restricted to the hosts of the replicas, so this error is ignored.
            _ => return Ok(None),
        };
        Ok(obstacle(
            format!("its replicas could not verify its mysqld: {error}"),
            format!(
                "give it a certificate for {} (ssl_cert, ssl_key) of the CA in {}, as the member's own is; or name the CA of the mysqlds in \
                 mysql.tls_ca_file, with mysql.tls = \"verify_ca\" where their certificates carry no host",
                primary.host,
                ca_file.display()
            ),
        ))
    }
}
