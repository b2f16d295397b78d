//! Manages the mysqld of a simulated member. This file is a module of the crate `member`, so that the simulator uses the same code as the
//! product. Raft, log and transport are simulated.

use std::io;
use std::sync::Arc;

use binlog_format::gtid::GtidSet;
use mysql_link::ConnectOptions;
use mysqld_controller::plan::same_uuid::OtherMysqlds;
use mysqld_server::ReplicationSource;
use mysqld_server::provision::CloneOffer;
use mysqld_server::supervisor::ExternalServer;
use raft_types::{Incarnation, MemberId, UnixSeconds};
use ring_admin::{Identity, IdentityBook};
use spilling_bytes::SpillFolder;
use tokio::sync::{mpsc, watch};

use super::connection::requirements;
use super::demotion_task::DemotionTask;
use super::management::MysqldManagement;
use super::startup::{Setup, event_scheduler};
use crate::commands::OrderedMysqld;
use crate::data_directory::UnmanagedNote;
use crate::leaving;
use crate::protocol::{
    CommandProgress, MysqldAnswer, MysqldOrder, Provisioned, Refusal, RefusalKind,
};
use crate::provisioning::{Donor, Provisioner, fit};
use crate::ring_handle::{RingHandle, now_in_seconds};
use crate::settings::{MysqlSettings, Settings};
use crate::state::ring_status;
use crate::status::{MemberView, MysqlView};

/// How a simulated member connects to its mysqld and controls the mysqld's process.
#[derive(Debug)]
pub struct Reached {
    /// Address, account and connection method.
    pub connect: ConnectOptions,
    /// Starts and stops the mysqld.
    pub owner: Arc<dyn ExternalServer>,
    /// The source of the mysqld's native replica threads, if the mysqld applies with them.
    pub native: Option<ReplicationSource>,
    /// The transactions that precede the ring's log.
    pub origin: GtidSet,
    /// The member's id and incarnation, with which ingest attaches to the mysqld.
    pub member: (MemberId, Incarnation),
}

/// The management of a simulated member's mysqld.
#[derive(Clone)]
pub struct MysqldBeside {
    management: Arc<MysqldManagement>,
    config: Arc<Settings>,
    ring: RingHandle,
}

impl MysqldBeside {
    /// Begins to manage the mysqld, in tasks of the current runtime.
    ///
    /// # Errors
    /// A file of the member's data directory cannot be read.
    pub fn begin(
        config: &Arc<Settings>,
        settings: &MysqlSettings,
        reached: Reached,
        ring: RingHandle,
    ) -> io::Result<Self> {
        let (member, incarnation) = reached.member;
        let no_others = OtherMysqlds {
            asked: true,
            ..OtherMysqlds::default()
        };
        let setup = Setup {
            config: config.clone(),
            settings: settings.clone(),
            requirements: requirements(settings, member, incarnation),
            events: event_scheduler(config, settings, &reached.connect)?,
            connect: reached.connect,
            ring: ring.clone(),
            native: reached.native,
            origin: reached.origin,
            guard: None,
            runtime_dir: None,
            commits: None,
            spill: SpillFolder::default(),
            owner: Some(reached.owner),
            others: watch::Sender::new(no_others).subscribe(),
        };
        let management = MysqldManagement::begin(setup)?;
        let (told, _) = watch::channel(None);
        if let Some(watching) = DemotionTask::of(&management, told) {
            tokio::spawn(watching.run());
        }
        Ok(Self {
            management,
            config: config.clone(),
            ring,
        })
    }

    /// Leaves the ring gracefully, as a stopping member does: transfers the leadership, and stops mysqld after its last commit. The member
    /// itself continues. If no other member can take over, it continues to lead.
    pub async fn stop(&self) {
        let (member, management) = (&self.ring.member, self.management.as_ref());
        let lease = self.config.raft.lease;
        leaving::in_good_order(member, Some(management), &self.config, lease).await;
    }

    /// Replaces the mysqld's data by those of another member's mysqld, as `witness reprovision --from` does. `theirs` is the donor member's
    /// view of its mysqld.
    ///
    /// # Errors
    /// The request is refused or fails. The message states whether data was removed.
    pub async fn provision(
        &self,
        donor: &dyn Donor,
        theirs: Option<&MysqlView>,
        force: bool,
    ) -> Result<Provisioned, Refusal> {
        let provisioner = self.provisioner()?;
        fit(donor.name(), theirs, Some(&self.view()))?;
        provisioner
            .provision(donor, force, &CommandProgress(mpsc::channel(1).0))
            .await
    }

    /// Creates an account with which another member's mysqld can clone this mysqld's data.
    ///
    /// # Errors
    /// The mysqld's own data is being replaced, or the mysqld refuses.
    pub async fn offer(&self, recipient: MemberId) -> Result<CloneOffer, Refusal> {
        self.provisioner()?.offer(recipient).await
    }

    fn provisioner(&self) -> Result<Arc<Provisioner>, Refusal> {
        self.management.provisioner().ok_or_else(|| {
            let what = "this member's mysqld is unmanaged";
            Refusal::new(RefusalKind::Refused, what, "let the member manage it")
        })
    }

    /// The member's current view of its mysqld.
    pub fn view(&self) -> MysqlView {
        self.management.view()
    }

    /// The member's view, limited to the ring and the mysqld.
    pub fn member_view(&self, identity: Identity) -> MemberView {
        let now = UnixSeconds(u64::from(now_in_seconds()));
        let raft = self.ring.member.status();
        MemberView {
            mysql: Some(self.view()),
            ..ring_status(&self.config, &identity, Some(&raft), None, now)
        }
    }
}

/// The mysqld of a simulated member during a conversion. The member may not have a ring yet.
pub struct ConvertedMysqld {
    /// The member's configuration, including that of its mysqld.
    pub config: Arc<Settings>,
    /// How to connect to mysqld.
    pub connect: ConnectOptions,
    /// The record of the member's identity and ring.
    pub book: Arc<IdentityBook>,
    /// The management of the mysqld. Present after the member has joined the ring.
    pub beside: Option<MysqldBeside>,
}

impl ConvertedMysqld {
    /// Carries out an order. Returns the resulting state.
    ///
    /// # Errors
    /// The refusal, with advice for the operator.
    pub async fn carry_out(&self, order: &MysqldOrder) -> Result<MysqldAnswer, Refusal> {
        let settings = self.config.mysql.as_ref().ok_or_else(|| {
            let what = "this member is a witness and has no mysqld";
            Refusal::new(RefusalKind::Refused, what, "")
        })?;
        let mysqld = OrderedMysqld {
            config: &self.config,
            settings,
            connect: self.connect.clone(),
            book: &self.book,
            management: self.beside.as_ref().map(|beside| beside.management.clone()),
        };
        mysqld.carry_out(order).await
    }

    /// Returns whether the data directory contains the file that makes the mysqld unmanaged.
    ///
    /// # Errors
    /// The file cannot be checked.
    pub fn is_left_alone(&self) -> io::Result<bool> {
        UnmanagedNote::of(&self.config.data_dir).is_set()
    }
}
