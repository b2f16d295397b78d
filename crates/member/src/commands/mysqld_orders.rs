//! Executes the orders of `witness enable-raft` and `witness disable-raft`: acts on the member's own mysqld, and bootstraps the ring. A
//! member without a ring does not act on its mysqld without an order. Regardless of the plan, an order is refused if two servers could
//! accept writes, or if a commit could succeed that no other member has.

use std::sync::Arc;
use std::time::Duration;

use mysql_link::{ConnectOptions, Secret};
use mysqld_server::conversion::{look, steps};
use mysqld_server::provision::CloneOffer;
use mysqld_server::{ReplicationSource, SourceTls, provision};
use raft_types::{MemberId, RingId};
use ring_admin::{IdentityBook, LogOrigin, RingState};
use tokio::sync::oneshot;

use crate::data_directory::UnmanagedNote;
use crate::mysqld::{MysqldManagement, requirements};
use crate::protocol::{MysqldAnswer, MysqldOrder, Refusal, RefusalKind, ReplicateFrom, source_tls};
use crate::ring_handle::now_ms;
use crate::settings::{MysqlSettings, Settings};
use crate::state::{BootstrapOrder, MemberState};

/// Time limit of a bootstrap, if all members are running.
const BOOTSTRAP_LIMIT: Duration = Duration::from_secs(25);
/// Interval between checks of the bootstrap.
const LOOK: Duration = Duration::from_millis(50);

/// Bootstraps the ring, with a log that begins after these transactions. If the member belongs to a ring already, returns that ring.
///
/// # Errors
/// The refusal, with advice.
pub(crate) async fn bootstrap(
    member_state: &Arc<MemberState>,
    origin: &str,
) -> Result<RingId, Refusal> {
    let mut bootstrap = None;
    let until = tokio::time::Instant::now() + BOOTSTRAP_LIMIT;
    loop {
        if let RingState::Belongs { ring } = member_state.book.identity().ring {
            return Ok(ring);
        }
        // A bootstrap that has begun continues after a restart, and needs no further order.
        if bootstrap.is_none() {
            let (answer, answered) = oneshot::channel();
            let order = BootstrapOrder {
                origin: LogOrigin::after(origin),
                answer,
            };
            let ordered = member_state.bootstrap_orders.try_send(order);
            bootstrap = ordered.is_ok().then_some(answered);
        }
        if let Some(answered) = &mut bootstrap
            && let Ok(Err(refusal)) = answered.try_recv()
        {
            return Err(refusal);
        }
        if tokio::time::Instant::now() > until {
            return Err(Refusal::new(
                RefusalKind::Unknown,
                "the ring is not made yet",
                "see in this member's log what it waits for, and run the command again",
            ));
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn done<E: std::fmt::Display>(outcome: Result<(), E>) -> Result<(), Refusal> {
    let advice = "fix that, and run the command again: it continues where it stopped";
    outcome.map_err(|error| Refusal::failed(error.to_string(), advice))
}

/// The member's mysqld, for orders about it.
pub(crate) struct OrderedMysqld<'a> {
    pub(crate) config: &'a Settings,
    pub(crate) settings: &'a MysqlSettings,
    pub(crate) connect: ConnectOptions,
    pub(crate) book: &'a IdentityBook,
    /// Set when the member takes part in its ring.
    pub(crate) management: Option<Arc<MysqldManagement>>,
}

impl<'a> OrderedMysqld<'a> {
    pub(super) fn of(member_state: &'a MemberState) -> Result<Self, Refusal> {
        let settings = member_state.settings.mysql.as_ref();
        let connect = member_state.credentials.mysqld.clone();
        let (settings, connect) = settings
            .zip(connect)
            .ok_or_else(|| Refusal::refused("this member is a witness and has no mysqld", ""))?;
        Ok(Self {
            config: &member_state.settings,
            settings,
            connect,
            book: &member_state.book,
            management: member_state.management(),
        })
    }

    /// Executes an order, and returns the resulting state.
    ///
    /// # Errors
    /// The refusal, with advice.
    pub(crate) async fn carry_out(&self, order: &MysqldOrder) -> Result<MysqldAnswer, Refusal> {
        let connect = &self.connect;
        match order {
            MysqldOrder::Look => return self.answer(true).await,
            MysqldOrder::StayUnmanaged => self.stay_unmanaged()?,
            MysqldOrder::Prepare => done(steps::prepare(connect, &self.requirements()).await)?,
            MysqldOrder::StopAcknowledging => done(steps::stop_acknowledging(connect).await)?,
            MysqldOrder::StopWaiting => {
                self.left_alone("commits wait for the ring, and would be let through")?;
                done(steps::stop_waiting(connect, &self.requirements()).await)?;
            }
            MysqldOrder::LeaveSource => {
                self.left_alone("the member manages it")?;
                done(steps::leave_source(connect).await)?;
            }
            MysqldOrder::Manage => done(self.management()?.manage().await)?,
            MysqldOrder::TakeOver => done(self.management()?.take_over().await)?,
            MysqldOrder::ReleaseFollower => done(self.management()?.release_follower().await)?,
            MysqldOrder::ReleasePrimary => done(self.management()?.release_primary().await)?,
            MysqldOrder::Replicate(from) => {
                self.left_alone("the member manages it")?;
                let source = self.source(from)?;
                // mysqld may have been restarted since its release, with the settings of its option file.
                done(steps::wait_for_nobody(connect).await)?;
                done(steps::follow_source(connect, &source).await)?;
            }
        }
        self.answer(false).await
    }

    fn requirements(&self) -> mysqld_server::settings::Requirements {
        let identity = self.book.identity();
        requirements(self.settings, identity.member, identity.incarnation)
    }

    async fn answer(&self, seen: bool) -> Result<MysqldAnswer, Refusal> {
        let note = self.note().is_set().map_err(|error| unknown(&error))?;
        let was_primary = self.note().is_of_the_primary().unwrap_or(false);
        let (look, unseen) = match seen {
            false => (None, None),
            true => match look(&self.connect, &self.requirements()).await {
                Ok(look) => (Some(look), None),
                Err(error) => (None, Some(error.to_string())),
            },
        };
        Ok(MysqldAnswer {
            ring: match self.book.identity().ring {
                RingState::Belongs { ring } => Some(ring),
                RingState::Fresh | RingState::Bootstrapping { .. } => None,
            },
            origin: self.book.origin().gtids().to_owned(),
            unmanaged: note,
            managed: self.is_managed(),
            was_primary,
            now_ms: now_ms(),
            look,
            unseen,
        })
    }

    fn note(&self) -> UnmanagedNote {
        UnmanagedNote::of(&self.config.data_dir)
    }

    fn is_managed(&self) -> bool {
        let management = self.management.as_ref();
        management.is_some_and(|management| management.is_managed())
    }

    fn left_alone(&self, why: &str) -> Result<(), Refusal> {
        if self.is_managed() {
            return Err(Refusal::refused(why, "nothing was done"));
        }
        Ok(())
    }

    /// Records that the member must not manage its mysqld. Without a ring, it does not manage it yet; the note keeps this so after the ring
    /// exists.
    fn stay_unmanaged(&self) -> Result<(), Refusal> {
        self.left_alone("the member manages its mysqld; `witness disable-raft` ends that cleanly")?;
        let note = self.note();
        if note.is_set().map_err(|error| unknown(&error))? {
            return Ok(());
        }
        if self.book.identity().ring != RingState::Fresh {
            return Err(Refusal::refused(
                "the member belongs to a ring, and begins to manage its mysqld",
                "start it with an empty data directory, and do not bootstrap it",
            ));
        }
        note.set().map_err(|error| unknown(&error))
    }

    pub(super) fn management(&self) -> Result<Arc<MysqldManagement>, Refusal> {
        self.management.clone().ok_or_else(|| {
            Refusal::new(
                RefusalKind::NoQuorum,
                "this member does not take part in its ring yet",
                "wait until it has opened its log, and try again",
            )
        })
    }

    fn source(&self, from: &ReplicateFrom) -> Result<ReplicationSource, Refusal> {
        let verify = self.config.tls.as_ref();
        let verify = verify.map(|tls| self.settings.source_tls(&tls.ca_file));
        replication_source(from, &self.connect.user, verify)
    }
}

/// Returns the primary as the source of this mysqld. If the ring has TLS, mysqld verifies the source.
fn replication_source(
    from: &ReplicateFrom,
    own_user: &str,
    verify: Option<SourceTls>,
) -> Result<ReplicationSource, Refusal> {
    let (Some(user), Some(password)) = (&from.user, &from.password) else {
        return Err(Refusal::refused(
            "the order names no replication account with its password",
            "run `witness disable-raft` of this version, with --replication-user and --replication-password-file",
        ));
    };
    if user == own_user {
        return Err(Refusal::refused(
            "the member's own account is not for replication: it has all rights",
            "CREATE USER another one, and GRANT REPLICATION SLAVE ON *.* to it",
        ));
    }
    Ok(ReplicationSource {
        host: from.host.clone(),
        port: from.port,
        user: user.clone(),
        password: Secret::new(password.as_str()),
        tls: source_tls(verify, from.tls)?,
    })
}

fn unknown(error: &std::io::Error) -> Refusal {
    Refusal::failed(
        format!("the note `hands-off` in the data directory cannot be read or written: {error}"),
        "fix the data directory; nothing was done",
    )
}

// The donor's part of a copy: creates and removes an account for it.

/// Creates an account for a copy by this member.
///
/// # Errors
/// If this member has no mysqld, or mysqld refuses.
pub(crate) async fn offer(
    member_state: &MemberState,
    recipient: MemberId,
) -> Result<CloneOffer, Refusal> {
    let connect = account(member_state)?;
    let management = member_state.management();
    match management.and_then(|management| management.provisioner()) {
        Some(provisioner) => provisioner.offer(recipient).await,
        None => Ok(provision::offer(connect, recipient).await?),
    }
}

/// Returns the member's account in its mysqld.
///
/// # Errors
/// If this member has no mysqld.
pub(super) fn account(member_state: &MemberState) -> Result<&ConnectOptions, Refusal> {
    let account = member_state.credentials.mysqld.as_ref();
    account.ok_or_else(no_mysqld)
}

/// Returns the refusal of a member without a mysqld, which can be neither donor nor recipient of a copy.
pub(crate) fn no_mysqld() -> Refusal {
    Refusal::refused("this member has no mysqld", "name a database member")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a path in the order, mysqld would send the first line of any file that it can read to a server of the caller's choice.
    #[test]
    fn an_order_to_replicate_names_no_file_and_not_the_members_account() {
        let verified = SourceTls::Verified {
            ca_file: "/etc/witness/tls/ca.crt".into(),
            identity: true,
        };
        let from = |json: &str| serde_json::from_str::<ReplicateFrom>(json).unwrap();
        let by_file = from(
            r#"{"host": "h", "port": 1, "tls": true, "user": "eve", "password_file": "/etc/witness/tls/member.key"}"#,
        );
        let of_the_member =
            from(r#"{"host": "h", "port": 1, "tls": true, "user": "witness", "password": "p"}"#);
        let without_tls = from(
            r#"{"host": "h", "port": 1, "tls": false, "user": "replication", "password": "p"}"#,
        );
        let without_user = from(r#"{"host": "h", "port": 1, "tls": true, "user": null}"#);
        for (from, words) in [
            (&by_file, "names no replication account"),
            (&without_user, "names no replication account"),
            (&of_the_member, "own account"),
            (&without_tls, "offers no TLS"),
        ] {
            let refused = replication_source(from, "witness", Some(verified.clone())).unwrap_err();
            assert!(refused.what.contains(words), "{refused:?}");
        }
        let usual = ReplicateFrom {
            tls: true,
            ..without_tls.clone()
        };
        assert!(!format!("{usual:?}").contains("\"p\""), "{usual:?}");
        for (from, verify, expected) in [
            (&usual, Some(verified.clone()), verified),
            (&usual, None, SourceTls::Unverified),
            (&without_tls, None, SourceTls::Off),
        ] {
            let source = replication_source(from, "witness", verify).unwrap();
            assert_eq!((source.tls, &*source.password.reveal()), (expected, "p"));
        }
    }
}
