//! The mysqld of a member with a simulated Raft, log and transport, as a module of `member`. The same code manages every member's mysqld.

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

use super::demotion_task::DemotionTask;
use super::connection::requirements;
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

/// Access to such a mysqld, and the owner of its process.
#[derive(Debug)]
pub struct Reached {
    /// Address, account and connection method.
    pub connect: ConnectOptions,
    /// Starts and stops it.
    pub owner: Arc<dyn ExternalServer>,
    /// Source of its own replica threads, if they apply.
    pub native: Option<ReplicationSource>,
    /// Transactions before the ring's log.
    pub origin: GtidSet,
    /// Identity with which the member attaches to it.
    pub member: (MemberId, Incarnation),
}

/// A managed mysqld.
#[derive(Clone)]
pub struct MysqldBeside {
    management: Arc<MysqldManagement>,
    config: Arc<Settings>,
    ring: RingHandle,
}

impl MysqldBeside {
    /// Begins to manage it, in tasks of the current runtime.
    ///
    /// # Errors
    /// When a file of the member's data directory cannot be read.
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

    /// Leaves the ring gracefully, as a stopping member does: transfers the leadership, and ends mysqld after its last commit. The member
    /// itself continues, and leads if no other member could take over.
    pub async fn stop(&self) {
        let (member, management) = (&self.ring.member, self.management.as_ref());
        let lease = self.config.raft.lease;
        leaving::in_good_order(member, Some(management), &self.config, lease).await;
    }

    /// Replaces its data by those of another member's mysqld, with that member's view `theirs`; as `witness reprovision --from` does.
    ///
    /// # Errors
    /// When it is refused or fails; the message says whether data were removed.
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

    /// Creates an account for a copy of it by another member.
    ///
    /// # Errors
    /// When its own data are being replaced, or it refuses.
    pub async fn offer(&self, recipient: MemberId) -> Result<CloneOffer, Refusal> {
        self.provisioner()?.offer(recipient).await
    }

    fn provisioner(&self) -> Result<Arc<Provisioner>, Refusal> {
        self.management.provisioner().ok_or_else(|| {
            let what = "this member's mysqld is unmanaged";
            Refusal::new(RefusalKind::Refused, what, "let the member manage it")
        })
    }

    /// Its current view.
    pub fn view(&self) -> MysqlView {
        self.management.view()
    }

    /// Its member's view, as far as it concerns the ring and mysqld.
    pub fn member_view(&self, identity: Identity) -> MemberView {
        let now = UnixSeconds(u64::from(now_in_seconds()));
        let raft = self.ring.member.status();
        MemberView {
            mysql: Some(self.view()),
            ..ring_status(&self.config, &identity, Some(&raft), None, now)
        }
    }
}

/// How such a member handles its mysqld during a conversion, also before it has a ring.
pub struct ConvertedMysqld {
    /// The member's configuration, with its mysqld's.
    pub config: Arc<Settings>,
    /// How to connect to mysqld.
    pub connect: ConnectOptions,
    /// The member's ring.
    pub book: Arc<IdentityBook>,
    /// Present once it takes part in the ring.
    pub beside: Option<MysqldBeside>,
}

impl ConvertedMysqld {
    /// Carries an order out, and returns the resulting state.
    ///
    /// # Errors
    /// The refusal, with what to do.
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

    /// Whether the data directory contains the note to leave mysqld alone.
    ///
    /// # Errors
    /// When the note cannot be checked.
    pub fn is_left_alone(&self) -> io::Result<bool> {
        UnmanagedNote::of(&self.config.data_dir).is_set()
    }
}
