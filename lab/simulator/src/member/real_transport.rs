//! A member that uses the real transport: gRPC over simulated connections, instead of messages.

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

/// Returns the formats of a newer program version, which supports the next format.
pub(crate) fn upgraded() -> FormatRange {
    let next = FormatVersion::FIRST.next();
    FormatRange::between(FormatVersion::FIRST, next).unwrap_or(FormatRange::OF_THIS_PROGRAM)
}

/// A time limit longer than any run.
const NEVER: Duration = Duration::from_secs(86_400);

/// The state that survives the member's processes: its identity, and the installed program version.
#[derive(Clone)]
pub(crate) struct RealTransport {
    streams: ByteStreams,
    identity: Identity,
    directory: Shared<Directory>,
}

/// The state on the member's disk.
#[derive(Debug, Clone, Copy)]
struct Directory {
    /// The formats of the installed program.
    installed: FormatRange,
    /// The formats of the program that was started last.
    started: FormatRange,
    /// The format of the data directory.
    reached: FormatVersion,
}

/// The client and the server of one process.
pub(super) struct Ends {
    pub(super) network: GrpcNetworkFactory,
    book: Arc<IdentityBook>,
    local: Arc<LocalMember>,
    server: RunningServer,
}

impl RealTransport {
    /// Creates the state of a member with this record. Its data directory belongs to a ring.
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

    /// Installs another program version, which the next start uses.
    pub(crate) fn install(&self, formats: FormatRange) {
        self.directory.lock().installed = formats;
    }

    /// Returns the formats of the installed program.
    pub(crate) fn installed(&self) -> FormatRange {
        self.directory.lock().installed
    }

    /// Returns the formats of the program that was started last.
    pub(crate) fn runs(&self) -> FormatRange {
        self.directory.lock().started
    }

    /// Returns whether the installed program supports the format of the data directory.
    pub(crate) fn takes_its_directory(&self) -> bool {
        let directory = self.directory.lock();
        directory.installed.has(directory.reached)
    }

    /// Returns the program version that the member reports to other members.
    pub(super) fn program(&self, mutation: Option<Mutation>) -> Program {
        Program {
            formats: match mutation {
                Some(Mutation::ClaimAnyFormat) => upgraded(),
                _ => self.installed(),
            },
            ..Program::this()
        }
    }

    /// Switches the member's host off. Other members receive no notice.
    pub(crate) fn switch_off(&self, member: MemberId) {
        self.streams.switch_off(member);
    }

    /// Begins to listen, within the process's runtime. Calls are answered only after [`Ends::take_calls`].
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
    /// Begins to accept calls for a member that takes part, and keeps its connections open.
    ///
    /// # Errors
    /// The data directory cannot be written, which does not happen in the simulator.
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
            // The listener ends when this value is dropped.
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

/// The identity file. The ring of a simulated member never changes, and each write replaces the whole file.
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
