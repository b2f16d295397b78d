//! `witness enable-raft`: takes a running primary and its replicas into a ring.

use std::time::Duration;

use binlog_format::gtid::GtidSet;
use member::protocol::{CommandResult, MysqldAnswer, MysqldOrder, OperatorCommand};
use member::status::{MysqlView, Question, answer};
use mysqld_controller::ReplicationSource;
use mysqld_controller::conversion::{
    EnableScene, EnableServer, EnableStep, Obstacle, Planned, plan_enable, steps,
};

use crate::cli::config_args::ConfigArgs;
use crate::cli::conversion::WritePause;
use crate::cli::conversion::context::{
    ConversionContext, Everybody, StockArgs, host_and_port, look_of, seen,
};
use crate::cli::conversion::steps::{Course, Work};
use crate::cli::session::{Consent, another_answer, block_on};
use crate::config::duration_of;
use crate::terminal::{Exit, Failure, Format};

/// Arguments of `witness enable-raft`.
#[derive(Debug, clap::Args)]
pub(crate) struct EnableArgs {
    /// Only look, and say what would be done
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    stock: StockArgs,
    /// The binlog server that the replicas without a member are to follow; its account is that of this [binlog_server] section
    #[arg(long, value_name = "HOST:PORT")]
    binlog_server: Option<String>,
    /// How long all of it may take, as in 30s or 10m
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration_of)]
    timeout: Duration,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    config: ConfigArgs,
}

const NAME: &str = "enable-raft";

/// Runs `witness enable-raft`.
///
/// # Errors
/// Exit 4 when something stands in the way, 3 when a member does not answer, 5 when a step is not done in time.
pub(crate) fn run(args: &EnableArgs, format: Format) -> Result<(), Failure> {
    let settings = args.config.member()?;
    let binlog_server = args
        .binlog_server
        .as_deref()
        .map(host_and_port)
        .transpose()?;
    let context = ConversionContext::new(NAME, settings, &args.stock, args.timeout, format)?;
    block_on(async {
        let everybody = context.everybody().await?;
        let scene = scene(&context, &everybody, binlog_server);
        let course = Course {
            context: &context,
            planned: plan(&context, &everybody, &scene),
            remarks: remarks(&scene, &everybody),
        };
        let mut enabling = Enabling {
            context: &context,
            everybody: &everybody,
            scene: &scene,
            pause: None,
        };
        course.go(args.dry_run, &args.consent, &mut enabling).await
    })
}

fn scene(
    context: &ConversionContext,
    everybody: &Everybody,
    binlog_server: Option<(String, u16)>,
) -> EnableScene {
    let server = |name: &str, answer: &Result<MysqldAnswer, String>| EnableServer {
        name: name.to_owned(),
        look: answer.clone().and_then(look_of),
        unmanaged: answer.as_ref().is_ok_and(|answer| answer.unmanaged),
        managed: answer.as_ref().is_ok_and(|answer| answer.managed),
    };
    let others = everybody.others.iter();
    let own = &everybody.own;
    let origin = own.ring.and_then(|_| own.origin.parse::<GtidSet>().ok());
    EnableScene {
        primary: server(&context.settings.own.name, &Ok(own.clone())),
        others: others
            .map(|(place, answer)| server(&place.name, answer))
            .collect(),
        stock: everybody.stock.clone(),
        binlog_server: binlog_server.filter(|_| context.settings.binlog_server.is_some()),
        origin,
        leads: everybody.report.leader == Some(context.settings.own.id),
    }
}

/// The plan, with what the members' rings say.
fn plan(
    context: &ConversionContext,
    everybody: &Everybody,
    scene: &EnableScene,
) -> Result<Vec<Planned<EnableStep>>, Vec<Obstacle>> {
    let planned = plan_enable(scene);
    let own = everybody.own.ring;
    let mut foreign: Vec<Obstacle> = everybody
        .report
        .members
        .iter()
        .filter(|member| member.id != context.settings.own.id)
        .filter_map(|member| {
            let ring = member.view.as_ref()?.ring.id?;
            (Some(ring) != own && own.is_some()).then(|| {
                Obstacle::new(
                    &member.name,
                    format!("it belongs to ring {ring} already"),
                    "start it with an empty data directory, without --bootstrap",
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
    remarks
}

struct Enabling<'a> {
    context: &'a ConversionContext,
    everybody: &'a Everybody,
    scene: &'a EnableScene,
    pause: Option<Duration>,
}

impl Work<EnableStep> for Enabling<'_> {
    fn question(&self) -> String {
        format!(
            "Create ring `{}` from these servers? Clients cannot write for a moment.",
            self.context.settings.ring_name
        )
    }

    async fn carry_out(&mut self, step: &EnableStep) -> Result<(), Failure> {
        let own = self.context.settings.own.name.clone();
        match step {
            EnableStep::StopManaging(name) => self.order(name, MysqldOrder::StayUnmanaged).await,
            EnableStep::CreateRing => self.create_ring().await,
            EnableStep::Lead => self.lead().await,
            EnableStep::Prepare => self.order(&own, MysqldOrder::Prepare).await,
            EnableStep::StopWaiting => self.order(&own, MysqldOrder::StopWaiting).await,
            EnableStep::StopAcknowledging(place) => self.stop_acknowledging(place).await,
            EnableStep::TakeOver => self.take_over().await,
            EnableStep::Follow(name) => self.follow(name).await,
            EnableStep::Repoint(address) => self.repoint(address).await,
        }
    }

    fn write_pause(&self) -> Option<Duration> {
        self.pause
    }

    fn end(&self, noticed: &str) -> String {
        let settings = &self.context.settings;
        format!(
            "\nRing `{}` has taken over the primary of `{}`. {noticed}\n",
            settings.ring_name, settings.own.name
        )
    }
}

impl Enabling<'_> {
    async fn order(&self, name: &str, order: MysqldOrder) -> Result<(), Failure> {
        let (place, directory) = (self.everybody.place(name)?, &self.everybody.directory);
        self.context.order(place, directory, order).await?;
        Ok(())
    }

    async fn create_ring(&self) -> Result<(), Failure> {
        let (context, directory) = (self.context, &self.everybody.directory);
        let own = context.own_place(directory)?;
        let look = seen(&own.name, context.look(own, directory).await?)?;
        let command = OperatorCommand::Bootstrap {
            origin: look.executed,
        };
        match context.command(own, directory, command).await? {
            CommandResult::Bootstrapped(_) => Ok(()),
            other => Err(another_answer(&other)),
        }
    }

    async fn lead(&self) -> Result<(), Failure> {
        let context = self.context;
        let own = context.settings.own.id;
        loop {
            let report = context.operator.ring().await;
            match report.leader {
                Some(leader) if leader == own => return Ok(()),
                Some(_) => {
                    let command = OperatorCommand::Promote {
                        to: own,
                        force: true,
                    };
                    let until = context.until;
                    // Refused while the ring is still arranging itself; asked again until the time is over.
                    let promoted = context.operator.lead(&report, &command, until, |_| {});
                    if let Err(failure) = promoted.await {
                        context.wait("the ring", &failure.what).await?;
                    }
                }
                None => context.wait("the ring", "it has no leader yet").await?,
            }
        }
    }

    async fn stop_acknowledging(&self, place: &str) -> Result<(), Failure> {
        let stock = self.context.stock.iter();
        match stock.clone().find(|stock| stock.address == place) {
            None => self.order(place, MysqldOrder::StopAcknowledging).await,
            Some(stock) => {
                let stopped = steps::stop_acknowledging(&stock.connect).await;
                stopped.map_err(|error| Failure::error(error.to_string()))
            }
        }
    }

    /// The one step that clients notice.
    async fn take_over(&mut self) -> Result<(), Failure> {
        let context = self.context;
        let own = context.own_place(&self.everybody.directory)?;
        let watch = WritePause::watch(&context.connect).await;
        let watch = watch.map_err(|error| Failure::error(error.to_string()))?;
        self.order(&own.name, MysqldOrder::Manage).await?;
        let primary = context.until_view(own, |view| answer(Question::Primary, view));
        primary.await?;
        self.pause = watch.end().await;
        Ok(())
    }

    async fn follow(&self, name: &str) -> Result<(), Failure> {
        let (context, directory) = (self.context, &self.everybody.directory);
        let (own, place) = (context.own_place(directory)?, self.everybody.place(name)?);
        // What the ring's log does not have, it can only get from the primary.
        let origin = self.origin().await?;
        context.until_executed(place, directory, &origin).await?;
        let left = context.order(place, directory, MysqldOrder::LeaveSource);
        left.await?;
        // What it got from the primary before the ring acknowledged that is committed by now, or soon.
        let executed = context.executed(place, directory).await?;
        context.until_executed(own, directory, &executed).await?;
        self.order(name, MysqldOrder::Manage).await?;
        let following = |view: &member::status::MemberView| follows(view.mysql.as_ref());
        context.until_view(place, following).await
    }

    async fn origin(&self) -> Result<GtidSet, Failure> {
        if let Some(origin) = &self.scene.origin {
            return Ok(origin.clone());
        }
        let directory = &self.everybody.directory;
        let own = self.context.own_place(directory)?;
        let answer = self.context.look(own, directory).await?;
        answer.origin.parse().map_err(|error| {
            Failure::error(format!(
                "the origin of the ring's log cannot be read: {error}"
            ))
        })
    }

    async fn repoint(&self, address: &str) -> Result<(), Failure> {
        let context = self.context;
        let stock = context.stock.iter();
        let stock = stock.clone().find(|stock| stock.address == address);
        let server = context.settings.binlog_server.as_ref();
        let (Some(stock), Some(server), Some((host, port))) =
            (stock, server, &self.scene.binlog_server)
        else {
            return Err(Failure::new(
                Exit::Refused,
                "there is no binlog server that it could follow",
                "give --binlog-server",
            ));
        };
        let origin = self.origin().await?;
        loop {
            let look = stock.look().await.map_err(Failure::error)?;
            let executed = look.executed().unwrap_or_default();
            if executed.contains_set(&origin) {
                break;
            }
            context
                .wait(address, "it lacks transactions from before the ring")
                .await?;
        }
        let password = server.password.read().map_err(|error| {
            Failure::error(format!(
                "the password of [binlog_server] cannot be read: {error}"
            ))
        })?;
        let source = ReplicationSource {
            host: host.clone(),
            port: *port,
            user: server.user.clone(),
            password: mysql_link::Secret::new(password),
            tls: server.certificate.is_some(),
        };
        let followed = steps::follow_source(&stock.connect, &source).await;
        followed.map_err(|error| Failure::error(error.to_string()))?;
        loop {
            let look = stock.look().await.map_err(Failure::error)?;
            let running = |channel: &mysqld_controller::conversion::ReplicatesFrom| {
                channel.receives && channel.applies
            };
            if look.replicates_from.iter().any(running) {
                return Ok(());
            }
            let error = look.replicates_from.iter().map(|from| from.error.as_str());
            context.wait(address, &error.collect::<String>()).await?;
        }
    }
}

/// Whether a follower follows, or has nothing that could be applied to it.
fn follows(mysql: Option<&MysqlView>) -> Result<(), String> {
    match mysql {
        None => Err("its mysqld is not managed yet".to_owned()),
        Some(mysql) if mysql.following || !mysql.applies => Ok(()),
        Some(mysql) => Err(mysql.trouble.clone().unwrap_or_else(|| mysql.role.clone())),
    }
}
