//! A member whose calls go over the real transport: gRPC over simulated connections, in the place of the messages.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use consensus::{Identity, IdentityBook, IdentityFile, LogOrigin, Member, RingState, Timers};
use futures::FutureExt;
use futures::future::BoxFuture;
use proxy::{Records, Relay, RouteTable};
use raft_types::{FormatVersion, MemberId, MemberRecord, OwnLog, RingId};
use spilling_bytes::SpillFolder;
use transport::{
    FarOptions, GrpcNetworkFactory, LocalMember, RunningServer, StatusSource, TransportConfig,
    serve_streams,
};

use crate::member::process_setup::ProcessSetup;
use crate::mutation::Mutation;
use crate::network::ByteStreams;

/// Deadlines that nobody lives to see.
const NEVER: Duration = Duration::from_secs(86_400);

/// What outlives the member's processes.
#[derive(Clone)]
pub(crate) struct RealTransport {
    streams: ByteStreams,
    book: Arc<IdentityBook>,
}

/// The two ends of one process.
pub(super) struct Ends {
    pub(super) network: GrpcNetworkFactory,
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
        let book = IdentityBook::new(identity, LogOrigin::default(), Box::new(NoFile));
        Self {
            streams,
            book: Arc::new(book),
        }
    }

    /// The machine is switched off: nobody hears of it.
    pub(crate) fn switch_off(&self, member: MemberId) {
        self.streams.switch_off(member);
    }

    /// Begins to listen, within the process's runtime. Nobody is answered before [`Ends::take_calls`].
    pub(super) fn begin(&self, setup: &ProcessSetup, log: Arc<dyn OwnLog>) -> Ends {
        let config = deadlines(&setup.timers, setup.mutation);
        let local = Arc::new(LocalMember::new(self.book.clone(), Arc::new(NoStatus)));
        local.report_of(log);
        let server = serve_streams(self.streams.listen(setup.id), local.clone(), &config);
        let network = GrpcNetworkFactory::over_streams(
            self.book.clone(),
            config,
            setup.record.region.clone(),
            FarOptions::default(),
            SpillFolder::default(),
            self.streams.of(setup.id),
        );
        Ends {
            network,
            local,
            server,
        }
    }
}

impl Ends {
    /// The member takes part: calls reach it, and its own connections are kept up.
    pub(super) fn take_calls(
        self,
        setup: &ProcessSetup,
        member: &Member,
        log: Arc<dyn OwnLog>,
        routes: RouteTable,
    ) {
        let inbound = member.inbound();
        let records: Records = Arc::new(move |member| inbound.record(member));
        let (calls, sessions) = (self.network.clone(), self.network.clone());
        let relay = Relay::new(setup.id, log, calls, sessions, routes, records);
        self.local.send_on_by(Arc::new(relay));
        self.local.attach(member.inbound());
        let (network, member) = (self.network, member.clone());
        tokio::spawn(async move {
            // Dropped, it would listen no more.
            let _listening = self.server;
            network.keep_connected(member).await;
        });
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

/// A member in a simulation never changes its ring.
struct NoFile;

impl IdentityFile for NoFile {
    fn write(&self, _: &Identity, _: &LogOrigin, _: FormatVersion) -> io::Result<()> {
        Ok(())
    }
}

struct NoStatus;

impl StatusSource for NoStatus {
    fn status(&self) -> BoxFuture<'_, Vec<u8>> {
        std::future::ready(Vec::new()).boxed()
    }
}
