//! A conversion's interface to members.

use futures::future::BoxFuture;
use raft_types::{MemberId, MemberKind, RingId};
use tokio::time::Instant;

use crate::conversion::ConversionFailure;
use crate::protocol::{MysqldAnswer, MysqldOrder};
use crate::status::{Answer, MemberView, MysqlView, Question, answer};

/// The configured members, as a run reaches them.
pub trait ConversionMembers: Send + Sync {
    /// The ring as all of them currently see it.
    fn ring(&self) -> BoxFuture<'_, RingSeen>;

    /// Makes a member act on its mysqld, or check it.
    ///
    /// # Errors
    /// Its refusal, in the caller's wording; that its result is unknown.
    fn order<'a>(
        &'a self,
        member: &'a MemberPlace,
        order: MysqldOrder,
        until: Instant,
    ) -> BoxFuture<'a, Result<MysqldAnswer, ConversionFailure>>;

    /// Makes a member bootstrap the ring, with a log after these transactions.
    ///
    /// # Errors
    /// As [`Self::order`].
    fn bootstrap<'a>(
        &'a self,
        member: &'a MemberPlace,
        origin: String,
        until: Instant,
    ) -> BoxFuture<'a, Result<(), ConversionFailure>>;

    /// Makes the last known leader transfer the leadership to this member, fit or not.
    ///
    /// # Errors
    /// As [`Self::order`].
    fn promote(&self, to: MemberId, until: Instant)
    -> BoxFuture<'_, Result<(), ConversionFailure>>;
}

/// The ring at one moment.
#[derive(Debug, Clone, Default)]
pub struct RingSeen {
    /// The leader with a quorum.
    pub leader: Option<MemberId>,
    /// Every configured member, then further members of the ring; each with its report, or why there is none.
    pub members: Vec<(MemberPlace, Result<MemberSaid, String>)>,
}

impl RingSeen {
    /// A member by its number.
    pub(super) fn place(&self, id: MemberId) -> Option<&MemberPlace> {
        let mut places = self.members.iter().map(|(place, _)| place);
        places.find(|place| place.id == id)
    }
}

/// A member and its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberPlace {
    /// The member's number, unique in the ring.
    pub id: MemberId,
    /// The member's name, unique in the ring.
    pub name: String,
    /// Database member or witness.
    pub kind: MemberKind,
    /// Its `HOST:PORT`.
    pub address: String,
}

/// A member's report, as far as a conversion needs it.
#[derive(Debug, Clone)]
pub struct MemberSaid {
    /// The ring that it belongs to, or is bootstrapping.
    pub ring: Option<RingId>,
    /// Whether clients may write to its mysqld, or why not.
    pub primary: Answer,
    /// Its mysqld, once it takes part in its ring.
    pub mysql: Option<MysqlView>,
}

impl MemberSaid {
    /// The report in its view.
    pub fn of(view: &MemberView) -> Self {
        Self {
            ring: view.ring.id,
            primary: answer(Question::Primary, view),
            mysql: view.mysql.clone(),
        }
    }

    /// Whether its mysqld follows the ring, or has no applier.
    ///
    /// # Errors
    /// The reason, as text.
    pub(super) fn follows(&self) -> Result<(), String> {
        match &self.mysql {
            None => Err("its mysqld is not managed yet".to_owned()),
            Some(mysql) if mysql.following || !mysql.applies => Ok(()),
            Some(mysql) => Err((mysql.trouble.clone()).unwrap_or_else(|| mysql.role.to_string())),
        }
    }
}
