//! What both commands work with: who is asked, how a member is ordered, and how something is waited for.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use binlog_format::gtid::GtidSet;
use member::connect_options;
use member::protocol::{CommandResult, MysqldAnswer, MysqldOrder, OperatorCommand};
use member::settings::{MysqlSettings, PasswordSource, Settings};
use member::status::MemberView;
use mysql_link::{ConnectOptions, Endpoint, Secret};
use mysqld_controller::conversion::{ServerLook, look};
use mysqld_controller::settings::Requirements;
use raft_types::MemberKind;
use tokio::time::Instant;
use uuid::Uuid;

use crate::cli::session::another_answer;
use crate::operator::{Asker, Directory, MemberAddress, Operator, RingReport};
use crate::terminal::{Exit, Failure, Format};

/// Between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(50);
/// How long one order may take.
const ORDER_LIMIT: Duration = Duration::from_secs(60);
/// Clocks that differ by more are told: what a follower is behind is counted by them.
const CLOCKS_DIFFER: Duration = Duration::from_secs(1);

pub(super) struct ConversionContext {
    pub(super) settings: Settings,
    pub(super) connect: ConnectOptions,
    pub(super) stock: Vec<Stock>,
    pub(super) operator: Operator,
    pub(super) until: Instant,
    pub(super) format: Format,
    pub(super) name: &'static str,
}

/// What the ring, its members' mysqlds and the stock replicas say at one moment.
pub(super) struct Everybody {
    pub(super) report: RingReport,
    pub(super) directory: Directory,
    pub(super) own: MysqldAnswer,
    pub(super) others: Vec<(MemberAddress, Result<MysqldAnswer, String>)>,
    pub(super) stock: Vec<(String, Result<ServerLook, String>)>,
}

impl ConversionContext {
    /// For the database member of this configuration.
    ///
    /// # Errors
    /// Exit 2 when it is a witness, or something given cannot be read.
    pub(super) fn new(
        name: &'static str,
        settings: Settings,
        stock: &StockArgs,
        timeout: Duration,
        format: Format,
    ) -> Result<Self, Failure> {
        let mysql = settings.mysql.as_ref().ok_or_else(|| witness(&settings))?;
        let connect = account(mysql)?;
        let asker = Asker::new(&settings)
            .map_err(|error| Failure::new(Exit::Usage, error.to_string(), ""))?;
        Ok(Self {
            stock: stock.read(&connect)?,
            connect,
            settings,
            operator: Operator::new(asker),
            until: Instant::now() + timeout,
            format,
            name,
        })
    }

    /// Looks at everybody, at the own server last: what the others have of it, it has then.
    ///
    /// # Errors
    /// When a member does not answer.
    pub(super) async fn everybody(&self) -> Result<Everybody, Failure> {
        let report = self.operator.ring().await;
        let directory = Directory::of(&report);
        if let Some(silent) = report.members.iter().find(|member| member.view.is_none()) {
            let error = silent.error.as_deref().unwrap_or("it does not answer");
            return Err(Failure::new(
                Exit::NoQuorum,
                format!("`{}` does not answer: {error}", silent.name),
                format!(
                    "start it (`witness run`, without --bootstrap), then run {} again",
                    self.name
                ),
            ));
        }
        let own_id = self.settings.own.id;
        let databases = directory
            .places()
            .filter(|place| place.kind == MemberKind::Database && place.id != own_id);
        let mut others = Vec::new();
        for place in databases {
            let answer = self.look(place, &directory).await;
            others.push((place.clone(), answer.map_err(|failure| failure.what)));
        }
        let mut stock = Vec::new();
        for replica in &self.stock {
            stock.push((replica.address.clone(), replica.look().await));
        }
        let own = self.own_place(&directory)?.clone();
        let own = self.look(&own, &directory).await?;
        Ok(Everybody {
            report,
            directory,
            own,
            others,
            stock,
        })
    }

    /// The member of this configuration.
    ///
    /// # Errors
    /// Never for a configuration that was read.
    pub(super) fn own_place<'d>(
        &self,
        directory: &'d Directory,
    ) -> Result<&'d MemberAddress, Failure> {
        directory.get(self.settings.own.id).ok_or_else(|| {
            Failure::error("the member of this configuration is not in its own list of members")
        })
    }

    /// What a member says of itself and of its mysqld.
    ///
    /// # Errors
    /// The member's refusal.
    pub(super) async fn look(
        &self,
        place: &MemberAddress,
        directory: &Directory,
    ) -> Result<MysqldAnswer, Failure> {
        self.order(place, directory, MysqldOrder::Look).await
    }

    /// Has a member do something.
    ///
    /// # Errors
    /// The member's refusal; exit 5 when its end is not known.
    pub(super) async fn order(
        &self,
        place: &MemberAddress,
        directory: &Directory,
        order: MysqldOrder,
    ) -> Result<MysqldAnswer, Failure> {
        match self
            .command(place, directory, OperatorCommand::Mysqld { order })
            .await?
        {
            CommandResult::Mysqld(answer) => Ok(*answer),
            other => Err(another_answer(&other)),
        }
    }

    /// Has a member carry a command out.
    ///
    /// # Errors
    /// As [`Self::order`].
    pub(super) async fn command(
        &self,
        place: &MemberAddress,
        directory: &Directory,
        command: OperatorCommand,
    ) -> Result<CommandResult, Failure> {
        let until = self.until.min(Instant::now() + ORDER_LIMIT);
        let asked = self.operator.at(place, directory, &command, until, |_| {});
        asked.await.map_err(|mut failure| {
            failure.what = format!("`{}`: {}", place.name, failure.what);
            failure
        })
    }

    /// Waits until a member's view is as wanted.
    ///
    /// # Errors
    /// Exit 5 when it is not in time; with what it says instead.
    pub(super) async fn until_view(
        &self,
        place: &MemberAddress,
        wanted: impl Fn(&MemberView) -> Result<(), String>,
    ) -> Result<(), Failure> {
        loop {
            let report = self.operator.ring().await;
            let view = report
                .members
                .into_iter()
                .find(|member| member.id == place.id)
                .and_then(|member| member.view);
            let why = match view.as_ref().map(&wanted) {
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
    /// Exit 5 when the time is over.
    pub(super) async fn wait(&self, place: &str, why: &str) -> Result<(), Failure> {
        if Instant::now() >= self.until {
            return Err(Failure::new(
                Exit::Unknown,
                format!("`{place}` was not ready in time: {why}"),
                format!(
                    "fix that, and run {} again: it continues where it stopped",
                    self.name
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
        place: &MemberAddress,
        directory: &Directory,
        wanted: &GtidSet,
    ) -> Result<(), Failure> {
        loop {
            let lacks = wanted.difference(&self.executed(place, directory).await?);
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
    pub(super) async fn executed(
        &self,
        place: &MemberAddress,
        directory: &Directory,
    ) -> Result<GtidSet, Failure> {
        let look = seen(&place.name, self.look(place, directory).await?)?;
        look.executed().map_err(|error| {
            Failure::error(format!(
                "gtid_executed of `{}` cannot be read: {error}",
                place.name
            ))
        })
    }
}

impl Everybody {
    /// A member by its name.
    ///
    /// # Errors
    /// Exit 4 when there is none.
    pub(super) fn place(&self, name: &str) -> Result<&MemberAddress, Failure> {
        self.directory.find(name)
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

/// What was seen of a server.
///
/// # Errors
/// When nothing was.
pub(super) fn seen(place: &str, answer: MysqldAnswer) -> Result<ServerLook, Failure> {
    let unseen = answer.unseen;
    answer.look.ok_or_else(|| {
        Failure::new(
            Exit::Error,
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

fn witness(settings: &Settings) -> Failure {
    Failure::new(
        Exit::Usage,
        format!("`{}` is a witness", settings.own.name),
        "run this with the configuration of the database member beside the primary, on its host",
    )
}

fn account(settings: &MysqlSettings) -> Result<ConnectOptions, Failure> {
    let mut connect = connect_options(settings).map_err(|error| {
        let what = format!("the file of `mysql.password_file` cannot be read: {error}");
        Failure::new(Exit::Usage, what, "")
    })?;
    connect.program_name = "witness-conversion".to_owned();
    Ok(connect)
}

// Replicas without a member: the command itself connects to them, with an account that is given on the command line.

/// Which they are, and the account there.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct StockArgs {
    /// A replica without a member that is to change its source as well; may be given more than once
    #[arg(long, value_name = "HOST:PORT")]
    stock_replica: Vec<String>,
    /// The account on those replicas; without it that of the `mysql` section
    #[arg(long, value_name = "USER")]
    stock_user: Option<String>,
    /// The file whose first line is that account's password
    #[arg(long, value_name = "FILE")]
    stock_password_file: Option<PathBuf>,
}

/// A replica without a member, which follows a binlog server or the primary.
#[derive(Debug, Clone)]
pub(super) struct Stock {
    /// Its address as the flag `--stock-replica` has it.
    pub(super) address: String,
    pub(super) connect: ConnectOptions,
}

impl StockArgs {
    /// Those that were given; what was not given of the account is taken from `usual`.
    ///
    /// # Errors
    /// Exit 2 when an address or the password's file cannot be read.
    pub(super) fn read(&self, usual: &ConnectOptions) -> Result<Vec<Stock>, Failure> {
        let password = match &self.stock_password_file {
            None => usual.password.clone(),
            Some(file) => {
                let read = PasswordSource::File(file.clone()).read();
                Secret::new(read.map_err(|error| {
                    let what = format!("{} cannot be read: {error}", file.display());
                    Failure::new(Exit::Usage, what, "")
                })?)
            }
        };
        let user = self.stock_user.as_ref().unwrap_or(&usual.user);
        let stock = self.stock_replica.iter().map(|address| {
            let (host, port) = host_and_port(address)?;
            Ok(Stock {
                address: address.clone(),
                connect: ConnectOptions {
                    endpoint: Endpoint::tcp(host, port),
                    user: user.clone(),
                    password: password.clone(),
                    ..usual.clone()
                },
            })
        });
        stock.collect()
    }
}

impl Stock {
    /// What it is at the moment.
    pub(super) async fn look(&self) -> Result<ServerLook, String> {
        // Nobody attaches to it, so that the identity does not matter.
        let requirements = Requirements::new(u32::MAX, Uuid::nil());
        let seen = look(&self.connect, &requirements).await;
        seen.map_err(|error| error.to_string())
    }
}

/// Reads `host:port`.
///
/// # Errors
/// Exit 2.
pub(super) fn host_and_port(text: &str) -> Result<(String, u16), Failure> {
    let parts = text.rsplit_once(':');
    let parts = parts.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
    parts.filter(|(host, _)| !host.is_empty()).ok_or_else(|| {
        Failure::new(
            Exit::Usage,
            format!("`{text}` is no HOST:PORT"),
            "for example 10.0.0.7:3306",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        assert_eq!(host_and_port("h:3306").unwrap(), ("h".to_owned(), 3306));
        assert_eq!(host_and_port("[::1]:1").unwrap(), ("[::1]".to_owned(), 1));
        for bad in ["", "h", ":1", "h:", "h:x", "h:99999"] {
            assert_eq!(host_and_port(bad).unwrap_err().exit, Exit::Usage, "{bad}");
        }
    }
}
