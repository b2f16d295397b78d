//! The mysqld beside a member whose Raft, log and transport somebody else runs: a simulation. What acts on it is what acts on the
//! mysqld of every member.

use std::io;
use std::sync::Arc;

use binlog_format::gtid::GtidSet;
use consensus::{Identity, IdentityBook};
use mysql_link::ConnectOptions;
use mysqld_controller::ReplicationSource;
use mysqld_controller::provision::CloneOffer;
use mysqld_controller::supervisor::ExternalServer;
use raft_types::{Incarnation, MemberId, UnixSeconds};
use spilling_bytes::SpillFolder;
use tokio::sync::watch;

use super::connection::requirements;
use super::management::{Given, MysqldManagement};
use super::other_mysqlds::OtherMysqlds;
use crate::commands::OrderedMysqld;
use crate::data_directory::UnmanagedNote;
use crate::leaving;
use crate::protocol::{
    CommandProgress, MysqldAnswer, MysqldOrder, Provisioned, Refusal, RefusalKind,
};
use crate::provisioning::{Donor, Provisioner, fit};
use crate::ring_handle::{RingHandle, now_in_seconds};
use crate::settings::{MysqlSettings, Settings};
use crate::state::StatusView;
use crate::status::{ActivityView, LogView, MemberView, MysqlView};

/// How such a mysqld is reached, and what owns its process.
#[derive(Debug)]
pub struct Reached {
    /// Address, account, and how connections are opened.
    pub connect: ConnectOptions,
    /// What starts and ends it.
    pub owner: Arc<dyn ExternalServer>,
    /// Where its own replica threads read from, if they apply.
    pub native: Option<ReplicationSource>,
    /// What the ring's log begins behind.
    pub origin: GtidSet,
    /// As whom the member attaches to it.
    pub member: (MemberId, Incarnation),
}

/// A mysqld that is looked after.
#[derive(Clone)]
pub struct MysqldBeside {
    management: Arc<MysqldManagement>,
    config: Arc<Settings>,
    ring: RingHandle,
}

impl MysqldBeside {
    /// Begins to look after it, in tasks of the current runtime.
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
        let requirements = requirements(settings, member, incarnation);
        let given = Given {
            native: reached.native,
            origin: reached.origin,
            guard: None,
            runtime_dir: None,
            commits: None,
            spill: SpillFolder::default(),
            owner: Some(reached.owner),
            others: OtherMysqlds::nobody(),
        };
        let management = MysqldManagement::begin(
            config,
            settings,
            reached.connect,
            requirements,
            given,
            ring.clone(),
        )?;
        let (told, _) = watch::channel(None);
        if let Some(watching) = management.take_part(told) {
            tokio::spawn(watching.run());
        }
        Ok(Self {
            management,
            config: config.clone(),
            ring,
        })
    }

    /// Leaves the ring to the others in good order, as a member does that is told to stop: the leadership is given away, and mysqld
    /// ends behind its last commit. The member itself still runs behind it, and leads if nobody could take that over.
    pub async fn stop(&self) {
        let (member, management) = (&self.ring.member, self.management.as_ref());
        let lease = self.config.raft.lease;
        leaving::in_good_order(member, Some(management), &self.config, lease).await;
    }

    /// Replaces its data by those of another member's, of which that says `theirs`; what `witness reprovision --from` has a member do.
    ///
    /// # Errors
    /// When it is refused or goes wrong; the words say whether data were removed.
    pub async fn provision(
        &self,
        donor: &dyn Donor,
        theirs: Option<&MysqlView>,
        force: bool,
    ) -> Result<Provisioned, Refusal> {
        let provisioner = self.provisioner()?;
        fit(donor.name(), theirs, Some(&self.view()))?;
        provisioner
            .provision(donor, force, &CommandProgress::unheard())
            .await
    }

    /// Makes an account for a copy of it by another member.
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

    /// What is to be said of it now.
    pub fn view(&self) -> MysqlView {
        self.management.view()
    }

    /// What its member says of itself, as far as that is about the ring and mysqld.
    pub fn member_view(&self, identity: Identity) -> MemberView {
        StatusView {
            config: &self.config,
            identity,
            uptime: std::time::Duration::ZERO,
            raft: Some(self.ring.member.status()),
            log: LogView::default(),
            activity: ActivityView::default(),
            quorum_lost_for: None,
            mysql: Some(self.view()),
            consumers: None,
            routes: None,
            fault: None,
            archive: None,
            hooks: None,
            now: UnixSeconds(u64::from(now_in_seconds())),
        }
        .view()
    }
}

/// What such a member does with its mysqld when a conversion orders it, also before it has a ring.
pub struct ConvertedMysqld {
    /// The member's configuration, with its mysqld's.
    pub config: Arc<Settings>,
    /// How the mysqld is reached.
    pub connect: ConnectOptions,
    /// Which ring the member belongs to.
    pub book: Arc<IdentityBook>,
    /// Once it takes part in that.
    pub beside: Option<MysqldBeside>,
}

impl ConvertedMysqld {
    /// Carries an order out, and says how things stand then.
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

    /// Whether the member was told not to act on it, as its data directory has it.
    ///
    /// # Errors
    /// When it cannot be looked there.
    pub fn is_left_alone(&self) -> io::Result<bool> {
        UnmanagedNote::of(&self.config.data_dir).is_set()
    }
}
