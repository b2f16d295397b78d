//! `witness status`: asks every member of the configuration and shows the ring.

mod table;

use std::io::IsTerminal;
use std::time::Duration;

use consensus::Timers;
use transport::{AdminClient, TlsFiles, TlsMaterial, TransportConfig};

use super::config_args::ConfigArgs;
use crate::config::{Config, MemberEntry};
use crate::status::{MemberView, RingReport};
use crate::terminal::{Exit, Failure};
use crate::terminal::{Format, colours, print_json, print_json_line, print_text};

/// Arguments of `witness status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// Show it again every second until it is interrupted
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

/// How often `--watch` asks.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a member may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs `witness status`.
///
/// # Errors
/// Exit 3 without a quorum, 2 for a wrong configuration.
pub(crate) fn run(args: &StatusArgs, format: Format) -> Result<(), Failure> {
    let (config, _) = args.config.load()?;
    let asker = Asker::new(&config)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        loop {
            let report = asker.report().await;
            show(&report, args.watch, format)?;
            if !args.watch {
                return if report.quorum.ok {
                    Ok(())
                } else {
                    Err(Failure::silent(Exit::NoQuorum))
                };
            }
            tokio::time::sleep(AGAIN).await;
        }
    })
}

fn show(report: &RingReport, watch: bool, format: Format) -> Result<(), Failure> {
    match format {
        Format::Json if watch => print_json_line(report),
        Format::Json => print_json(report),
        Format::Table => {
            let page = table::page(report, colours());
            if watch && std::io::stdout().is_terminal() {
                // Home, the page, and nothing of an older and longer one below it.
                let page = page.replace('\n', "\x1b[K\n");
                print_text(&format!("\x1b[H{page}\x1b[J"))
            } else if watch {
                print_text(&format!("{page}\n"))
            } else {
                print_text(&page)
            }
        }
    }
}

/// Asks the members of one configuration.
pub(crate) struct Asker {
    ring: String,
    members: Vec<MemberEntry>,
    tls: Option<TlsMaterial>,
    transport: TransportConfig,
}

impl Asker {
    /// For the members of this configuration.
    ///
    /// # Errors
    /// When the files for TLS cannot be used.
    pub(crate) fn new(config: &Config) -> Result<Self, Failure> {
        let tls = match &config.tls {
            None => None,
            Some(tls) => {
                let files = TlsFiles {
                    certificate: tls.certificate_file.clone(),
                    key: tls.key_file.clone(),
                    authority: tls.ca_file.clone(),
                    peer_name: tls.peer_name.clone(),
                };
                let material = TlsMaterial::load(&files);
                Some(material.map_err(|error| Failure::new(Exit::Usage, error.to_string(), ""))?)
            }
        };
        Ok(Self {
            ring: config.ring_name.clone(),
            members: config.members.clone(),
            tls,
            transport: TransportConfig {
                connect_deadline: PATIENCE,
                call_deadline: PATIENCE,
                ..TransportConfig::for_timers(&Timers::default())
            },
        })
    }

    /// The ring as all of them see it, asked at once.
    pub(crate) async fn report(&self) -> RingReport {
        let asked = self.members.iter().map(async |member| {
            let answer = self.ask(member).await;
            (member.clone(), answer)
        });
        let answers = futures::future::join_all(asked).await;
        RingReport::new(&self.ring, answers)
    }

    /// One member's view.
    ///
    /// # Errors
    /// In words, why there is none.
    pub(crate) async fn ask(&self, member: &MemberEntry) -> Result<MemberView, String> {
        let client = AdminClient::new(&member.address, self.tls.as_ref(), self.transport);
        let client = client.map_err(|error| error.to_string())?;
        let json = client.status().await.map_err(|error| error.to_string())?;
        let view: MemberView = serde_json::from_slice(&json).map_err(|error| {
            format!("its answer has no meaning ({error}); run the same version everywhere")
        })?;
        if view.member.id != member.id {
            return Err(format!(
                "member {} `{}` answers at {}; check the addresses",
                view.member.id, view.member.name, member.address
            ));
        }
        Ok(view)
    }
}
