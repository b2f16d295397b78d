//! The source of the log, as one type: files, a mysqld, or a member.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use applier::source::{Drained, DumpSource, FileSource, Source, SourceError, framed, persist};
use binlog_format::framing::FramedTransaction;
use binlog_format::gtid::GtidSet;
use mysql_link::{ConnectOptions, DumpOptions, Endpoint, Secret, TlsMode};
use transport::{AdminClient, AdminError, LogPiece, LogPieces};
use uuid::Uuid;

use crate::cli::config_args::ConfigArgs;
use crate::config::did_you_mean;
use crate::operator::Asker;
use crate::terminal::{Attempt, Exit, Failure};

/// The source of the log; one of three.
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

enum Origin {
    Files(Box<FileSource>),
    Dump(Box<DumpSource>),
    Member(Box<MemberSource>),
}

impl OriginArgs {
    /// True if the log has an end, as files have.
    pub(super) fn ends(&self) -> bool {
        !self.files.is_empty()
    }

    /// Opens the log after the executed transactions. An unreachable source is retried for as long as `patience`.
    pub(super) async fn open(
        &self,
        config: &ConfigArgs,
        executed: GtidSet,
        patience: Duration,
        max_transaction_bytes: u64,
    ) -> Attempt<Watched> {
        let origin = if let Some(from) = &self.from_mysql {
            let connect = self.login.options(from)?;
            let dump = DumpOptions::new(self.server_id, Uuid::new_v4(), executed);
            let source = DumpSource::new(connect, dump, patience, max_transaction_bytes);
            Origin::Dump(Box::new(source))
        } else if let Some(name) = &self.from_member {
            Origin::Member(Box::new(MemberSource {
                client: client(config, name)?,
                have: executed,
                patience,
                max_transaction_bytes,
                pieces: None,
                drained: Drained::default(),
            }))
        } else {
            let files = self.files.clone();
            let files = FileSource::open(files, Some(executed), max_transaction_bytes).await;
            let missing = |error: SourceError| Exit::Usage.because(error, "name existing files");
            Origin::Files(Box::new(files.map_err(missing)?))
        };
        let watched = Watched {
            origin,
            read: Arc::default(),
        };
        watched.note(0);
        Ok(watched)
    }
}

fn client(config: &ConfigArgs, name: &str) -> Attempt<AdminClient> {
    let config = config.member()?;
    let asker = Asker::new(&config).map_err(Failure::error)?;
    let Some(member) = config.members.iter().find(|member| member.name == name) else {
        let names = config.members.iter().map(|member| member.name.as_str());
        let other = || {
            let known: Vec<_> = names.clone().collect();
            format!("the configuration has {}", known.join(", "))
        };
        let advice = did_you_mean(name, names.clone(), other);
        let what = format!("the ring has no member `{name}`");
        return Err(Exit::Usage.because(what, advice));
    };
    asker.client(&member.address).map_err(Failure::error)
}

/// A member's log, as a source for the applier. After the loss of a connection, reading continues at the same position.
struct MemberSource {
    client: AdminClient,
    /// The transactions that the target had at the start, and the transactions delivered since.
    have: GtidSet,
    /// How long the member may be unreachable.
    patience: Duration,
    max_transaction_bytes: u64,
    pieces: Option<LogPieces>,
    drained: Drained,
}

impl MemberSource {
    async fn open(&self) -> Result<LogPieces, SourceError> {
        let may_pass = AdminError::may_pass;
        let have = self.have.to_string();
        let open = || {
            self.client
                .read_log(have.clone(), self.max_transaction_bytes)
        };
        let trouble = "the member's log cannot be read";
        let opened = persist(self.patience, trouble, may_pass, open);
        opened.await.map_err(|error| match may_pass(&error) {
            true => SourceError::Unreachable(error.to_string()),
            false => SourceError::Refused(error.to_string()),
        })
    }
}

impl Source for MemberSource {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        loop {
            let pieces = match &mut self.pieces {
                Some(pieces) => pieces,
                None => {
                    let opened = self.open().await?;
                    self.drained.set(false);
                    self.pieces.insert(opened)
                }
            };
            match pieces.next().await {
                Ok(Some(LogPiece::Transaction(payload))) => {
                    let transaction = framed(payload, self.max_transaction_bytes)?;
                    self.have.add(transaction.gtid);
                    self.drained.set(false);
                    return Ok(Some(transaction));
                }
                Ok(Some(LogPiece::CaughtUp)) => self.drained.set(true),
                Ok(None) => {
                    tracing::warn!("the member stops; opening its log again");
                    self.pieces = None;
                }
                Err(error @ AdminError::Unreachable { .. }) => {
                    tracing::warn!(%error, "reading the member's log was interrupted; opening it again");
                    self.pieces = None;
                }
                Err(error) => return Err(SourceError::Refused(error.to_string())),
            }
        }
    }

    fn drained(&self) -> Drained {
        self.drained.clone()
    }
}

// Address and login of a mysqld, from the command line.

/// The mysqld to which transactions are applied.
#[derive(Debug, clap::Args)]
pub(super) struct TargetLogin {
    /// The mysqld to apply to: HOST:PORT, or the path of its socket
    #[arg(long, value_name = "ADDRESS")]
    to: Endpoint,
    /// Account there
    #[arg(long, value_name = "NAME", default_value = "witness")]
    to_user: String,
    /// File with its password; without one, $WITNESS_TO_PASSWORD
    #[arg(long, value_name = "FILE")]
    to_password_file: Option<PathBuf>,
    /// TLS: disabled, preferred, required, verify_ca or verify_identity
    #[arg(long, value_name = "MODE", default_value = "preferred")]
    to_tls: TlsMode,
    /// Authorities that may have signed its certificate, PEM
    #[arg(long, value_name = "FILE")]
    to_tls_ca_file: Option<PathBuf>,
}

/// The mysqld that is the source of the binlog.
#[derive(Debug, clap::Args)]
pub(super) struct SourceLogin {
    /// Account there, with REPLICATION SLAVE
    #[arg(long, value_name = "NAME", default_value = "witness")]
    from_user: String,
    /// File with its password; without one, $WITNESS_FROM_PASSWORD
    #[arg(long, value_name = "FILE")]
    from_password_file: Option<PathBuf>,
    /// TLS: disabled, preferred, required, verify_ca or verify_identity
    #[arg(long, value_name = "MODE", default_value = "preferred")]
    from_tls: TlsMode,
    /// Authorities that may have signed its certificate, PEM
    #[arg(long, value_name = "FILE")]
    from_tls_ca_file: Option<PathBuf>,
}

impl TargetLogin {
    pub(super) fn options(&self) -> Attempt<ConnectOptions> {
        let password = password(self.to_password_file.as_deref(), "WITNESS_TO_PASSWORD")?;
        let mut options = ConnectOptions::new(self.to.clone(), &self.to_user, password);
        (options.tls.mode, options.tls.ca_file) = (self.to_tls, self.to_tls_ca_file.clone());
        Ok(options)
    }
}

impl SourceLogin {
    fn options(&self, from: &Endpoint) -> Attempt<ConnectOptions> {
        let password = password(self.from_password_file.as_deref(), "WITNESS_FROM_PASSWORD")?;
        let mut options = ConnectOptions::new(from.clone(), &self.from_user, password);
        (options.tls.mode, options.tls.ca_file) = (self.from_tls, self.from_tls_ca_file.clone());
        Ok(options)
    }
}

fn password(file: Option<&Path>, variable: &str) -> Attempt<Secret> {
    let Some(file) = file else {
        return Ok(Secret::new(std::env::var(variable).unwrap_or_default()));
    };
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Secret::new(text.trim_end_matches(['\r', '\n']))),
        Err(error) => Err(Exit::Usage.because(
            format!(
                "the password file {} cannot be read: {error}",
                file.display()
            ),
            format!("name another, or give the password in ${variable}"),
        )),
    }
}

/// How much of a log's files has been read.
#[derive(Debug, Default)]
pub(super) struct ReadSoFar {
    /// Bytes of the files read so far.
    pub(super) file_done: AtomicU64,
    /// Bytes of all files together.
    pub(super) file_total: AtomicU64,
    /// Bytes of the transactions delivered.
    pub(super) given: AtomicU64,
}

/// A source that reports its progress, for the progress bar.
pub(super) struct Watched {
    origin: Origin,
    pub(super) read: Arc<ReadSoFar>,
}

impl Watched {
    fn note(&self, given: u64) {
        self.read.given.fetch_add(given, Relaxed);
        if let Origin::Files(files) = &self.origin {
            let files = files.read();
            self.read.file_done.store(files.done, Relaxed);
            self.read.file_total.store(files.total, Relaxed);
        }
    }
}

impl Source for Watched {
    async fn next(&mut self) -> Result<Option<FramedTransaction>, SourceError> {
        let next = match &mut self.origin {
            Origin::Files(source) => source.next().await?,
            Origin::Dump(source) => source.next().await?,
            Origin::Member(source) => source.next().await?,
        };
        let bytes = next.as_ref().map_or(0, |next| next.payload.len());
        self.note(bytes as u64);
        Ok(next)
    }

    fn drained(&self) -> Drained {
        match &self.origin {
            Origin::Files(source) => source.drained(),
            Origin::Dump(source) => source.drained(),
            Origin::Member(source) => source.drained(),
        }
    }
}
