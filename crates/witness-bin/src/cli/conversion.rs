//! `witness enable-raft` takes a running primary and its replicas into a ring. `witness disable-raft` restores plain MySQL replication.
//! Both keep the primary. This module has the arguments, the output, and the calls to the members; `member::conversion` does the
//! conversion.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::BoxFuture;
use member::connect_options;
use member::conversion::{
    Conversion, ConversionMembers, Course, Direction, MemberPlace, Planned, ReplicationAccount,
    RingSeen, Step, StockReplica,
};
use member::protocol::{
    CommandResult, MysqldAnswer, MysqldOrder, OperatorCommand, Refusal, RefusalKind,
};
use member::settings::{PasswordSource, Settings};
use mysql_link::{ConnectOptions, Endpoint, Secret};
use mysqld_server::SourceTls;
use raft_types::MemberId;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cli::config_args::ConfigArgs;
use crate::cli::session::{Consent, another_answer, block_on, milliseconds};
use crate::config::duration_of;
use crate::operator::{Asker, Directory, RingReport};
use crate::terminal::{Attempt, Exit, Failure, Format, print, print_json, print_text};
use crate::text::lines;

/// Arguments of `witness enable-raft`.
#[derive(Debug, clap::Args)]
pub(crate) struct EnableArgs {
    /// The binlog server that the replicas without a member are to follow; its account is that of this [binlog_server] section
    #[arg(long, value_name = "HOST:PORT")]
    binlog_server: Option<String>,
    #[command(flatten)]
    run: RunArgs,
}

/// Arguments of `witness disable-raft`.
#[derive(Debug, clap::Args)]
pub(crate) struct DisableArgs {
    /// Where the replicas reach the primary; without it the host of its member's address, and mysqld's port
    #[arg(long, value_name = "HOST:PORT")]
    source: Option<String>,
    /// The account at the primary that the replicas log in with; not that of the members
    #[arg(long, value_name = "USER", requires = "replication_password_file")]
    replication_user: Option<String>,
    /// The file on this host with that account's password in its first line; the members receive the password
    #[arg(long, value_name = "FILE", requires = "replication_user")]
    replication_password_file: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
}

/// Arguments of both.
#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Only check the servers, and print the plan
    #[arg(long)]
    dry_run: bool,
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

/// Replicas without a member: the command itself connects to them, with an account from the command line.
#[derive(Debug, Clone, clap::Args)]
struct StockArgs {
    /// A replica without a member that is to change its source as well; may be given more than once
    #[arg(long, value_name = "HOST:PORT")]
    stock_replica: Vec<String>,
    /// The account on those replicas; without it that of the `mysql` section
    #[arg(long, value_name = "USER")]
    stock_user: Option<String>,
    /// The file with that account's password in its first line
    #[arg(long, value_name = "FILE")]
    stock_password_file: Option<PathBuf>,
    /// The file on the hosts of those replicas with the CA of the ring's certificates, by which they verify their source; their mysqld
    /// reads it. Needed where the ring has TLS
    #[arg(long, value_name = "FILE")]
    stock_ca_file: Option<PathBuf>,
}

/// Runs `witness enable-raft`.
///
/// # Errors
/// Exit 4 when there is an obstacle, 3 when a member does not answer, 5 when a step is not complete in time.
pub(crate) fn enable(args: &EnableArgs, format: Format) -> Attempt {
    let settings = args.run.config.member()?;
    let binlog_server = args.binlog_server.as_deref();
    let binlog_server = binlog_server.map(host_and_port).transpose()?;
    let members = AskedMembers::of(&settings)?;
    let mut conversion = args
        .run
        .conversion(Direction::EnableRaft, &settings, &members)?;
    conversion.binlog_server = binlog_server.zip(settings.binlog_server.clone());
    let (ring, own) = (&settings.ring_name, &settings.own.name);
    let question =
        format!("Create ring `{ring}` from these servers? Clients cannot write for a moment.");
    let end = |write_pause: &str| {
        format!("\nRing `{ring}` has taken over the primary of `{own}`. {write_pause}\n")
    };
    block_on(args.run.go(&conversion, format, &question, end))
}

/// Runs `witness disable-raft`.
///
/// # Errors
/// Exit 4 when there is an obstacle, 3 when a member does not answer, 5 when a step is not complete in time.
pub(crate) fn disable(args: &DisableArgs, format: Format) -> Attempt {
    let settings = args.run.config.member()?;
    let user = args.replication_user.clone();
    let login = user.zip(args.replication_password_file.as_deref());
    let login = login.map(|(user, file)| Ok::<_, Failure>((user, password_in(file)?)));
    let account = ReplicationAccount {
        source: args.source.as_deref().map(host_and_port).transpose()?,
        login: login.transpose()?,
    };
    let members = AskedMembers::of(&settings)?;
    let mut conversion = args
        .run
        .conversion(Direction::DisableRaft, &settings, &members)?;
    conversion.account = account;
    let (ring, own) = (&settings.ring_name, &settings.own.name);
    let question = format!(
        "Return the servers of ring `{ring}` to plain replication? There is no failover afterwards."
    );
    let end = |write_pause: &str| {
        format!(
            "\nThe mysqld of `{own}` is a plain primary. {write_pause}\n\
             The members no longer manage any server; stop them when you like. Their data directories stay.\n"
        )
    };
    block_on(args.run.go(&conversion, format, &question, end))
}

impl RunArgs {
    /// Prepares the conversion for the database member of this configuration. Its timeout begins now.
    ///
    /// # Errors
    /// Exit 2 if the member is a witness, or an argument or a file that it names is invalid.
    fn conversion<'a>(
        &self,
        direction: Direction,
        settings: &Settings,
        members: &'a AskedMembers,
    ) -> Attempt<Conversion<'a>> {
        let mysql = settings.mysql.as_ref().ok_or_else(|| {
            Exit::Usage.because(
                format!("`{}` is a witness", settings.own.name),
                "run this with the configuration of the database member next to the primary, on its host",
            )
        })?;
        let mut connect = connect_options(mysql).map_err(|error| {
            let what = format!("the file of `mysql.password_file` cannot be read: {error}");
            Exit::Usage.because(what, "")
        })?;
        connect.program_name = "witness-conversion".to_owned();
        let tls = settings.tls.as_ref();
        Ok(Conversion {
            direction,
            members,
            own: settings.own.id,
            name: settings.own.name.clone(),
            data_dir: settings.data_dir.clone(),
            stock: self.stock.read(&connect, settings)?,
            connect,
            binlog_server: None,
            account: ReplicationAccount::default(),
            source_tls: tls.map_or(SourceTls::Off, |tls| mysql.source_tls(&tls.ca_file)),
            until: Instant::now() + self.timeout,
        })
    }
}

impl StockArgs {
    /// Returns the replicas on the command line. If no user or password is given for them, that of `usual` is used.
    ///
    /// # Errors
    /// Exit 2 if an address is invalid, or the file of the password cannot be read.
    fn read(&self, usual: &ConnectOptions, settings: &Settings) -> Attempt<Vec<StockReplica>> {
        let password = match &self.stock_password_file {
            None => usual.password.clone(),
            Some(file) => password_in(file)?,
        };
        let server = settings.binlog_server.as_ref();
        let has_tls =
            settings.tls.is_some() || server.is_some_and(|server| server.certificate.is_some());
        if has_tls && !self.stock_replica.is_empty() && self.stock_ca_file.is_none() {
            return Err(Exit::Usage.because(
                "a replica without a member could not verify its source",
                "copy the CA file of the ring (`tls.ca_file`) to its host, and name the path there with --stock-ca-file",
            ));
        }
        let user = self.stock_user.as_ref().unwrap_or(&usual.user);
        let stock = self.stock_replica.iter().map(|address| {
            let (host, port) = host_and_port(address)?;
            Ok(StockReplica {
                address: address.clone(),
                connect: ConnectOptions {
                    endpoint: Endpoint::tcp(host, port),
                    user: user.clone(),
                    password: password.clone(),
                    ..usual.clone()
                },
                ca_file: self.stock_ca_file.clone(),
            })
        });
        stock.collect()
    }
}

/// Reads the password in the first line of a file.
fn password_in(file: &Path) -> Attempt<Secret> {
    let read = PasswordSource::File(file.to_owned()).read();
    read.map(Secret::new)
        .map_err(|error| Exit::Usage.because(format!("cannot read the password file {error}"), ""))
}

fn host_and_port(text: &str) -> Attempt<(String, u16)> {
    let parts = raft_types::host_and_port(text);
    let (host, port) = parts
        .map_err(|mistake| Exit::Usage.because(mistake, "write HOST:PORT, as in 10.0.0.7:3306"))?;
    Ok((host.to_owned(), port))
}

// The output of both commands: the plan, the obstacles, the question before the first step, the duration of each step, and the result.

impl RunArgs {
    /// Shows the plan of a conversion and, unless this is a dry run, executes it. `question` is the question before the first step. `end`
    /// returns the final message; its argument is a sentence about the time in which clients could not write.
    ///
    /// # Errors
    /// Exit 4 if there is an obstacle or the operator does not confirm; the errors of the steps.
    async fn go(
        &self,
        conversion: &Conversion<'_>,
        format: Format,
        question: &str,
        end: impl FnOnce(&str) -> String,
    ) -> Attempt {
        let mut course = Course::of(conversion).await?;
        let direction = conversion.direction;
        show(direction, &course, format)?;
        let all_done = course.is_done();
        if self.dry_run || all_done {
            let document = document(&course, all_done, None);
            return print(format, &document, || match all_done {
                true => "\nEverything is done already.\n",
                false => "\nNothing was done. Run it without --dry-run to carry it out.\n",
            });
        }
        self.consent.to(question)?;
        let report = |step: &Step, seconds: f64| {
            if format == Format::Table {
                // Later steps must be executed even if the caller has closed standard error.
                let _ = writeln!(
                    std::io::stderr().lock(),
                    "{:<60} {:>10}",
                    step.to_string(),
                    milliseconds(seconds)
                );
            }
        };
        let pause = course.carry_out(report).await?;
        let noticed = match pause {
            Some(seconds) => format!("Clients could not write for {}.", milliseconds(seconds)),
            None => "The time in which clients could not write was not measured.".to_owned(),
        };
        print(format, &document(&course, true, pause), || end(&noticed))
    }
}

/// Prints a plan with its obstacles and remarks. JSON is printed only if there are obstacles.
///
/// # Errors
/// Exit 4 if there are obstacles.
fn show(direction: Direction, course: &Course<'_>, format: Format) -> Attempt {
    let mut text = String::new();
    for Planned { step, done } in &course.steps {
        let mark = if *done { "done" } else { "to do" };
        let _ = writeln!(text, "{mark:<6} {step}");
    }
    let obstacles = &course.obstacles;
    for obstacle in obstacles {
        let _ = writeln!(
            text,
            "{}: {}\n       {}",
            obstacle.place, obstacle.found, obstacle.advice
        );
    }
    text += &lines("Remark: ", &course.remarks);
    match format {
        Format::Table => print_text(&text)?,
        Format::Json if !obstacles.is_empty() => {
            print_json(&document(course, false, None))?;
        }
        Format::Json => {}
    }
    let what = match obstacles.len() {
        0 => return Ok(()),
        1 => "there is one obstacle".to_owned(),
        many => format!("there are {many} obstacles"),
    };
    let command = direction.name();
    Err(Exit::Refused.because(
        format!("{what}; nothing was done"),
        format!("fix what is named above, and run {command} again"),
    ))
}

/// Returns the output for `--output json`: the steps, including completed steps; the obstacles; and how long clients could not write, if
/// that was measured.
fn document(course: &Course<'_>, all_done: bool, write_pause: Option<f64>) -> Value {
    let steps = course.steps.iter();
    let plan = steps.map(
        |planned| json!({ "step": planned.step.to_string(), "done": planned.done || all_done }),
    );
    let obstacles = course.obstacles.iter().map(ToString::to_string);
    json!({
        "plan": plan.collect::<Vec<_>>(),
        "obstacles": obstacles.collect::<Vec<_>>(),
        "remarks": course.remarks,
        "done": all_done,
        "write_pause_seconds": write_pause,
    })
}

// The configured members, reached over their admin calls.

pub(super) struct AskedMembers {
    asker: Asker,
    /// The last answers of all members.
    last: watch::Sender<Option<RingReport>>,
}

impl AskedMembers {
    /// Creates a client for the members of this configuration.
    ///
    /// # Errors
    /// Exit 2 if the configured files for TLS cannot be used.
    pub(super) fn of(settings: &Settings) -> Attempt<Self> {
        let asker = Asker::new(settings);
        let asker = asker.map_err(|error| Exit::Usage.because(error, ""))?;
        Ok(Self {
            asker,
            last: watch::Sender::new(None),
        })
    }

    async fn report(&self) -> RingReport {
        let report = self.asker.report().await;
        self.last.send_replace(Some(report.clone()));
        report
    }

    async fn last_report(&self) -> RingReport {
        let last = self.last.borrow().clone();
        match last {
            Some(report) => report,
            None => self.report().await,
        }
    }

    async fn command(
        &self,
        place: &MemberPlace,
        command: OperatorCommand,
        until: Instant,
    ) -> Attempt<CommandResult> {
        let directory = Directory::of(&self.last_report().await);
        let address = match directory.get(place.id) {
            Some(address) => address,
            None => directory.find(&place.name)?,
        };
        let ordered = self.asker.at(address, &directory, &command, until, |_| {});
        ordered.await
    }
}

impl ConversionMembers for AskedMembers {
    fn ring(&self) -> BoxFuture<'_, RingSeen> {
        Box::pin(async {
            let report = self.report().await;
            let members = report.members.into_iter().map(|member| {
                let place = MemberPlace {
                    id: member.entry.id,
                    name: member.entry.name,
                    kind: member.entry.kind,
                    address: member.entry.address,
                };
                let error = member.error;
                let silent = || {
                    let why = error.unwrap_or_else(|| "it does not answer".to_owned());
                    Refusal::new(RefusalKind::NoQuorum, why, "")
                };
                (place, member.view.ok_or_else(silent))
            });
            RingSeen {
                leader: report.leader,
                members: members.collect(),
            }
        })
    }

    fn order<'a>(
        &'a self,
        member: &'a MemberPlace,
        order: MysqldOrder,
        until: Instant,
    ) -> BoxFuture<'a, Result<MysqldAnswer, Refusal>> {
        Box::pin(async move {
            let command = OperatorCommand::Mysqld { order };
            match self.command(member, command, until).await? {
                CommandResult::Mysqld(answer) => Ok(*answer),
                other => Err(another_answer(&other).into()),
            }
        })
    }

    fn bootstrap<'a>(
        &'a self,
        member: &'a MemberPlace,
        origin: String,
        until: Instant,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let command = OperatorCommand::Bootstrap { origin };
            match self.command(member, command, until).await? {
                CommandResult::Bootstrapped(_) => Ok(()),
                other => Err(another_answer(&other).into()),
            }
        })
    }

    fn promote(&self, to: MemberId, until: Instant) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            let report = self.last_report().await;
            let command = OperatorCommand::Promote { to, force: true };
            let promoted = self.asker.lead(&report, &command, until, |_| {});
            promoted.await?;
            Ok(())
        })
    }
}
