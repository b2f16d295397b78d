//! A member that uses the real transport, gRPC over simulated connections, instead of messages.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use consensus::{Program, Timers};
use futures::FutureExt;
use futures::future::BoxFuture;
use proxy::{Relay, RouteTable};
use raft_types::{FormatRange, FormatVersion, MemberId, MemberRecord, OwnLog, RingId};
use ring_admin::{
    Identity, IdentityBook, IdentityFile, IdentityPages, LogOrigin, Member, RingState,
};
use transport::{
    FarOptions, GrpcNetworkFactory, LocalMember, NetworkOptions, RunningServer, StatusSource,
    TransportConfig, serve_streams,
};

use crate::member::process_setup::ProcessSetup;
use crate::mutation::Mutation;
use crate::network::ByteStreams;
use crate::shared::Shared;

/// Formats of a program version with the next format.
pub(crate) fn upgraded() -> FormatRange {
    let next = FormatVersion::FIRST.next();
    FormatRange::between(FormatVersion::FIRST, next).unwrap_or(FormatRange::OF_THIS_PROGRAM)
}

/// Deadlines beyond any run.
const NEVER: Duration = Duration::from_secs(86_400);

/// State that survives the member's processes: its identity, and its installed program version.
#[derive(Clone)]
pub(crate) struct RealTransport {
    streams: ByteStreams,
    identity: Identity,
    directory: Shared<Directory>,
}

/// State on its disk.
#[derive(Debug, Clone, Copy)]
struct Directory {
    /// Formats of the installed program.
    installed: FormatRange,
    /// Formats of the last started program.
    started: FormatRange,
    /// The data directory's format.
    reached: FormatVersion,
}

/// The client and server ends of one process.
pub(super) struct Ends {
    pub(super) network: GrpcNetworkFactory,
    book: Arc<IdentityBook>,
    local: Arc<LocalMember>,
    server: RunningServer,
}

impl RealTransport {
    /// For the member with this record, whose directory belongs to its ring.
    pub(crate) fn new(
        streams: ByteStreams,
        ring: RingId,
        member: MemberId,
        record: &MemberRecord,
    ) -> Self {
        let identity = Identity {
            member,
            incarnation: record.incarnation,
            ring: RingState::Belongs { ring },
        };
        Self {
            streams,
            identity,
            directory: Shared::new(Directory {
                installed: FormatRange::OF_THIS_PROGRAM,
                started: FormatRange::OF_THIS_PROGRAM,
                reached: FormatVersion::FIRST,
            }),
        }
    }

    /// Installs another program version, from the next start on.
    pub(crate) fn install(&self, formats: FormatRange) {
        self.directory.lock().installed = formats;
    }

    /// Formats of the installed program.
    pub(crate) fn installed(&self) -> FormatRange {
        self.directory.lock().installed
    }

    /// Formats of the last started program.
    pub(crate) fn runs(&self) -> FormatRange {
        self.directory.lock().started
    }

    /// Whether the installed program accepts this data directory.
    pub(crate) fn takes_its_directory(&self) -> bool {
        let directory = self.directory.lock();
        directory.installed.has(directory.reached)
    }

    /// The program as announced to other members.
    pub(super) fn program(&self, mutation: Option<Mutation>) -> Program {
        Program {
            formats: match mutation {
                Some(Mutation::ClaimAnyFormat) => upgraded(),
                _ => self.installed(),
            },
            ..Program::this()
        }
    }

    /// The machine is switched off, without notice to others.
    pub(crate) fn switch_off(&self, member: MemberId) {
        self.streams.switch_off(member);
    }

    /// Begins to listen, within the process's runtime. No call is answered before [`Ends::take_calls`].
    pub(super) fn begin(&self, setup: &ProcessSetup, log: Arc<dyn OwnLog>) -> Ends {
        let config = deadlines(&setup.timers, setup.mutation);
        let Directory {
            installed, reached, ..
        } = *self.directory.lock();
        self.directory.lock().started = installed;
        let book = IdentityBook::new(
            self.identity,
            LogOrigin::default(),
            Box::new(DirectoryFile(self.directory.clone())),
        );
        let book = Arc::new(book.speaking(installed, reached, false));
        let local = Arc::new(LocalMember::new(book.clone(), Arc::new(NoStatus)));
        let _ = local.log.set(log);
        let server = serve_streams(self.streams.listen(setup.id), local.clone(), &config);
        let options = NetworkOptions {
            config,
            far: Some((setup.record.region.clone(), FarOptions::default())),
            streams: Some(self.streams.of(setup.id)),
            ..NetworkOptions::default()
        };
        let network = GrpcNetworkFactory::new(book.clone(), options);
        Ends {
            network,
            book,
            local,
            server,
        }
    }
}

impl Ends {
    /// The member takes part: it accepts calls, and maintains its own connections.
    ///
    /// # Errors
    /// When its data directory cannot be written, which does not happen here.
    pub(super) fn take_calls(
        self,
        setup: &ProcessSetup,
        member: &Member,
        log: Arc<dyn OwnLog>,
        routes: RouteTable,
    ) -> io::Result<()> {
        member.keep_formats_in(&self.book)?;
        let (calls, sessions) = (self.network.clone(), self.network.clone());
        let relay = Relay::new(setup.id, log, calls, sessions, routes);
        let _ = self.local.proxy.set(Arc::new(relay));
        let _ = self.local.inbound.set(member.inbound());
        let (network, member) = (self.network, member.clone());
        tokio::spawn(async move {
            // Dropping it would end the listener.
            let _listening = self.server;
            network.keep_connected(member).await;
        });
        Ok(())
    }
}

fn deadlines(timers: &Timers, mutation: Option<Mutation>) -> TransportConfig {
    let usual = TransportConfig::for_timers(timers);
    match mutation {
        Some(Mutation::TrustOpenConnections) => TransportConfig {
            keepalive: NEVER,
            caller_keepalive: NEVER,
            far_deadline: NEVER,
            stall_deadline: NEVER,
            ..usual
        },
        _ => usual,
    }
}

/// A simulated member never changes its ring. The file is replaced atomically.
struct DirectoryFile(Shared<Directory>);

impl IdentityFile for DirectoryFile {
    fn write(&self, pages: &IdentityPages) -> io::Result<()> {
        let mut directory = self.0.lock();
        directory.reached = pages.reached;
        Ok(())
    }
}

struct NoStatus;

impl StatusSource for NoStatus {
    fn status(&self) -> BoxFuture<'_, Vec<u8>> {
        std::future::ready(Vec::new()).boxed()
    }
}
