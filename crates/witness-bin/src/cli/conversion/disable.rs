//! `witness disable-raft`: gives plain MySQL replication back, with the primary where it is.

use std::path::PathBuf;
use std::time::Duration;

use member::protocol::{MysqldAnswer, MysqldOrder, ReplicateFrom};
use member::settings::PasswordSource;
use mysql_link::Secret;
use mysqld_controller::ReplicationSource;
use mysqld_controller::conversion::{DetachScene, DetachServer, DetachStep, plan_detach, steps};

use crate::cli::config_args::ConfigArgs;
use crate::cli::conversion::WritePause;
use crate::cli::conversion::context::{
    ConversionContext, Everybody, Stock, StockArgs, host_and_port, look_of, seen,
};
use crate::cli::conversion::steps::{Course, Work};
use crate::cli::session::{Consent, block_on};
use crate::config::duration_of;
use crate::terminal::{Failure, Format};

/// Arguments of `witness disable-raft`.
#[derive(Debug, clap::Args)]
pub(crate) struct DisableArgs {
    /// Only look, and say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Where the replicas reach the primary; without it the host of its member's address, and mysqld's port
    #[arg(long, value_name = "HOST:PORT")]
    source: Option<String>,
    /// The account that the replicas log in with; without it each member's own, `mysql.user`
    #[arg(long, value_name = "USER", requires = "replication_password_file")]
    replication_user: Option<String>,
    /// The file, on every member's host, whose first line is that account's password
    #[arg(long, value_name = "FILE", requires = "replication_user")]
    replication_password_file: Option<PathBuf>,
    #[command(flatten)]
    stock: StockArgs,
    /// How long all of it may take, as in 30s or 10m
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration_of)]
    timeout: Duration,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    config: ConfigArgs,
}

const NAME: &str = "disable-raft";

/// Runs `witness disable-raft`.
///
/// # Errors
/// Exit 4 when something stands in the way, 3 when a member does not answer, 5 when a step is not done in time.
pub(crate) fn run(args: &DisableArgs, format: Format) -> Result<(), Failure> {
    let settings = args.config.member()?;
    let source = args.source.as_deref().map(host_and_port).transpose()?;
    let context = ConversionContext::new(NAME, settings, &args.stock, args.timeout, format)?;
    block_on(async {
        let everybody = context.everybody().await?;
        let course = Course {
            context: &context,
            planned: plan_detach(&scene(&context, &everybody)),
            remarks: Vec::new(),
        };
        let mut detaching = Detaching {
            args,
            context: &context,
            everybody: &everybody,
            source,
            pause: None,
        };
        course.go(args.dry_run, &args.consent, &mut detaching).await
    })
}

fn scene(context: &ConversionContext, everybody: &Everybody) -> DetachScene {
    let server = |name: &str, answer: &Result<MysqldAnswer, String>| DetachServer {
        name: name.to_owned(),
        look: answer.clone().and_then(look_of),
        managed: answer.as_ref().is_ok_and(|answer| answer.managed),
    };
    let others = everybody.others.iter();
    DetachScene {
        primary: server(&context.settings.own.name, &Ok(everybody.own.clone())),
        leads: everybody.report.leader == Some(context.settings.own.id),
        others: others
            .map(|(place, answer)| server(&place.name, answer))
            .collect(),
        stock: everybody.stock.clone(),
    }
}

struct Detaching<'a> {
    args: &'a DisableArgs,
    context: &'a ConversionContext,
    everybody: &'a Everybody,
    source: Option<(String, u16)>,
    pause: Option<Duration>,
}

impl Work<DetachStep> for Detaching<'_> {
    fn question(&self) -> String {
        format!(
            "Return the servers of ring `{}` to plain replication? There is no failover afterwards.",
            self.context.settings.ring_name
        )
    }

    async fn carry_out(&mut self, step: &DetachStep) -> Result<(), Failure> {
        match step {
            DetachStep::StopManaging(name) => self.let_go(name).await,
            DetachStep::Release => self.release().await,
            DetachStep::Replicate(place) => {
                let stock = self.context.stock.iter();
                match stock.clone().find(|stock| stock.address == *place) {
                    Some(stock) => self.stock_replicates(stock).await,
                    None => self.replicates(place).await,
                }
            }
        }
    }

    fn write_pause(&self) -> Option<Duration> {
        self.pause
    }

    fn end(&self, noticed: &str) -> String {
        format!(
            "\nThe mysqld of `{}` is a plain primary. {noticed}\nThe members no longer manage any server; stop them when you like. Their data directories stay.\n",
            self.context.settings.own.name
        )
    }
}

impl Detaching<'_> {
    /// A follower is let go once it has what the primary has now, so that it lacks little meanwhile.
    async fn let_go(&self, name: &str) -> Result<(), Failure> {
        let (context, directory) = (self.context, &self.everybody.directory);
        let (own, place) = (context.own_place(directory)?, self.everybody.place(name)?);
        let executed = context.executed(own, directory).await?;
        context.until_executed(place, directory, &executed).await?;
        let order = context.order(place, directory, MysqldOrder::ReleaseFollower);
        order.await?;
        Ok(())
    }

    /// The one step that clients notice.
    async fn release(&mut self) -> Result<(), Failure> {
        let (context, directory) = (self.context, &self.everybody.directory);
        let own = context.own_place(directory)?;
        let watch = WritePause::watch(&context.connect).await;
        let watch = watch.map_err(|error| Failure::error(error.to_string()))?;
        let order = context.order(own, directory, MysqldOrder::ReleasePrimary);
        order.await?;
        self.pause = watch.end().await;
        Ok(())
    }

    /// Where the primary is reached, and whether over TLS.
    async fn primary(&self) -> Result<ReplicateFrom, Failure> {
        let directory = &self.everybody.directory;
        let own = self.context.own_place(directory)?;
        let look = seen(&own.name, self.context.look(own, directory).await?)?;
        let (host, port) = match &self.source {
            Some(source) => source.clone(),
            None => (host_and_port(&own.address)?.0, look.port),
        };
        Ok(ReplicateFrom {
            host,
            port,
            tls: look.tls,
            user: self.args.replication_user.clone(),
            password_file: self.args.replication_password_file.clone(),
        })
    }

    async fn replicates(&self, name: &str) -> Result<(), Failure> {
        let (context, directory) = (self.context, &self.everybody.directory);
        let place = self.everybody.place(name)?;
        let order = MysqldOrder::Replicate(self.primary().await?);
        context.order(place, directory, order).await?;
        loop {
            let look = seen(name, context.look(place, directory).await?)?;
            if look.follows(self.primary_uuid()) {
                return Ok(());
            }
            let errors = look.replicates_from.iter().map(|from| from.error.as_str());
            context.wait(name, &errors.collect::<String>()).await?;
        }
    }

    fn primary_uuid(&self) -> Option<uuid::Uuid> {
        self.everybody.own.look.as_ref()?.uuid
    }

    async fn stock_replicates(&self, stock: &Stock) -> Result<(), Failure> {
        let from = self.primary().await?;
        let password = match &self.args.replication_password_file {
            None => self.context.connect.password.clone(),
            Some(file) => {
                let read = PasswordSource::File(file.clone()).read();
                Secret::new(read.map_err(|error| {
                    Failure::error(format!("{} cannot be read: {error}", file.display()))
                })?)
            }
        };
        let source = ReplicationSource {
            host: from.host,
            port: from.port,
            user: from
                .user
                .unwrap_or_else(|| self.context.connect.user.clone()),
            password,
            tls: from.tls,
        };
        let followed = steps::follow_source(&stock.connect, &source).await;
        followed.map_err(|error| Failure::error(error.to_string()))?;
        loop {
            let look = stock.look().await.map_err(Failure::error)?;
            if look.follows(self.primary_uuid()) {
                return Ok(());
            }
            let errors = look.replicates_from.iter().map(|from| from.error.as_str());
            let why = errors.collect::<String>();
            self.context.wait(&stock.address, &why).await?;
        }
    }
}
