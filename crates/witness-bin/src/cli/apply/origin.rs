//! Where the log comes from: files, a mysqld, or a member, behind one type.

use std::path::PathBuf;
use std::time::Duration;

use applier::source::{DumpSource, FileSource, ReadBytes, Source, SourceError};
use binlog_format::framing::FramedTransaction;
use binlog_format::gtid::GtidSet;
use mysql_link::{DumpOptions, Endpoint};
use uuid::Uuid;

use super::login::SourceLogin;
use super::member_source::MemberSource;
use crate::cli::config_args::ConfigArgs;
use crate::config::nearest;
use crate::operator::Asker;
use crate::terminal::{Exit, Failure};

/// Where the log comes from; one of the three.
#[derive(Debug, clap::Args)]
pub(super) struct OriginArgs {
    /// Binlog files of a mysqld or of a member, in their order
    #[arg(value_name = "FILE", required_unless_present_any = ["from_mysql", "from_member"],
          conflicts_with_all = ["from_mysql", "from_member"])]
    files: Vec<PathBuf>,
    /// A mysqld, or a binlog server, as its replica: HOST:PORT or a socket
    #[arg(long, value_name = "ADDRESS", conflicts_with = "from_member")]
    from_mysql: Option<Endpoint>,
    /// A member of the configured ring, by its name: its committed transactions
    #[arg(long, value_name = "MEMBER")]
    from_member: Option<String>,
    #[command(flatten)]
    login: SourceLogin,
    /// Server id of this replica towards the mysqld; no other replica may have it
    #[arg(long, value_name = "NUMBER", default_value_t = 1_999_999_999)]
    server_id: u32,
}

/// What the log is read with.
pub(super) struct Reading {
    /// What the target has.
    pub(super) executed: GtidSet,
    /// How long a source may be away before it is given up.
    pub(super) patience: Duration,
    pub(super) max_transaction_bytes: u64,
}

/// One of the sources.
pub(super) enum Origin {
    Files(Box<FileSource>),
    Dump(Box<DumpSource>),
    Member(Box<MemberSource>),
}

impl OriginArgs {
    /// Whether the log ends by itself.
    pub(super) fn ends(&self) -> bool {
        !self.files.is_empty()
    }

    /// Opens the source.
    pub(super) async fn open(
        &self,
        config: &ConfigArgs,
        reading: Reading,
    ) -> Result<Origin, Failure> {
        let Reading {
            executed,
            patience,
            max_transaction_bytes,
        } = reading;
        if let Some(from) = &self.from_mysql {
            let connect = self.login.options(from)?;
            let dump = DumpOptions {
                semi_sync: false,
                ..DumpOptions::new(self.server_id, Uuid::new_v4(), executed)
            };
            let source = DumpSource::new(connect, dump, patience, max_transaction_bytes);
            return Ok(Origin::Dump(Box::new(source)));
        }
        if let Some(name) = &self.from_member {
            let client = client(config, name)?;
            let source = MemberSource::new(client, executed, patience, max_transaction_bytes);
            return Ok(Origin::Member(Box::new(source)));
        }
        let files = FileSource::open(self.files.clone(), executed, max_transaction_bytes);
        let files = files.await.map_err(|error| {
            Failure::new(Exit::Usage, error.to_string(), "name files that are there")
        })?;
        Ok(Origin::Files(Box::new(files)))
    }
}

fn client(config: &ConfigArgs, name: &str) -> Result<transport::AdminClient, Failure> {
    let config = config.member()?;
    let asker = Asker::new(&config).map_err(|error| Failure::error(error.to_string()))?;
    let names = config.members.iter().map(|member| member.name.as_str());
    let Some(member) = config.members.iter().find(|member| member.name == name) else {
        let known: Vec<&str> = names.collect();
        let advice = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the configuration has {}", known.join(", ")),
        };
        let what = format!("the ring has no member `{name}`");
        return Err(Failure::new(Exit::Usage, what, advice));
    };
    asker
        .client(&member.address)
        .map_err(|error| Failure::error(error.to_string()))
}

impl Origin {
    /// How far files are read; nothing for a log without an end.
    pub(super) fn read(&self) -> Option<ReadBytes> {
        match self {
            Self::Files(files) => Some(files.read()),
            Self::Dump(_) | Self::Member(_) => None,
        }
    }
}

impl Source for Origin {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        match self {
            Self::Files(source) => source.next().await,
            Self::Dump(source) => source.next().await,
            Self::Member(source) => source.next().await,
        }
    }

    fn is_drained(&self) -> bool {
        match self {
            Self::Files(source) => source.is_drained(),
            Self::Dump(source) => source.is_drained(),
            Self::Member(source) => source.is_drained(),
        }
    }
}
