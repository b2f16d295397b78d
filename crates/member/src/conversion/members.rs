//! What a conversion asks of members.

use futures::future::BoxFuture;
use raft_types::{MemberId, MemberKind, RingId};
use tokio::time::Instant;

use crate::conversion::ConversionFailure;
use crate::protocol::{MysqldAnswer, MysqldOrder};
use crate::status::{Answer, MemberView, MysqlView, Question, answer};

/// The members of a configuration, as a run reaches them.
pub trait ConversionMembers: Send + Sync {
    /// The ring as all of them see it now.
    fn ring(&self) -> BoxFuture<'_, RingSeen>;

    /// Has a member do something about its mysqld, or look at it.
    ///
    /// # Errors
    /// Its refusal, in the words of whoever asks; that its end is not known.
    fn order<'a>(
        &'a self,
        member: &'a MemberPlace,
        order: MysqldOrder,
        until: Instant,
    ) -> BoxFuture<'a, Result<MysqldAnswer, ConversionFailure>>;

    /// Has a member make the ring, its log behind these transactions.
    ///
    /// # Errors
    /// As [`Self::order`].
    fn bootstrap<'a>(
        &'a self,
        member: &'a MemberPlace,
        origin: String,
        until: Instant,
    ) -> BoxFuture<'a, Result<(), ConversionFailure>>;

    /// Has the leader that was seen last give the leadership to this member, fit or not.
    ///
    /// # Errors
    /// As [`Self::order`].
    fn promote(&self, to: MemberId, until: Instant)
    -> BoxFuture<'_, Result<(), ConversionFailure>>;
}

/// The ring at one moment.
#[derive(Debug, Clone, Default)]
pub struct RingSeen {
    /// Who leads with a quorum behind it.
    pub leader: Option<MemberId>,
    /// Every configured member, and then those that are in the ring all the same; with what each said, or why it said nothing.
    pub members: Vec<(MemberPlace, Result<MemberSaid, String>)>,
}

impl RingSeen {
    /// A member by its number.
    pub(super) fn place(&self, id: MemberId) -> Option<&MemberPlace> {
        let mut places = self.members.iter().map(|(place, _)| place);
        places.find(|place| place.id == id)
    }
}

/// One member, and where it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberPlace {
    /// The member's number, unique in the ring.
    pub id: MemberId,
    /// The member's name, unique in the ring.
    pub name: String,
    /// With a mysqld or without.
    pub kind: MemberKind,
    /// `HOST:PORT` at which it is reached.
    pub address: String,
}

/// What a member says of itself, as far as a conversion asks for it.
#[derive(Debug, Clone)]
pub struct MemberSaid {
    /// The ring that it belongs to, or makes.
    pub ring: Option<RingId>,
    /// Whether clients may write to the mysqld beside it, or why not.
    pub primary: Answer,
    /// The mysqld beside it, once it takes part in its ring.
    pub mysql: Option<MysqlView>,
}

impl MemberSaid {
    /// What its view says.
    pub fn of(view: &MemberView) -> Self {
        Self {
            ring: view.ring.id,
            primary: answer(Question::Primary, view),
            mysql: view.mysql.clone(),
        }
    }

    /// Whether its mysqld follows the ring, or nothing could be applied to that.
    ///
    /// # Errors
    /// Why not, in words.
    pub(super) fn follows(&self) -> Result<(), String> {
        match &self.mysql {
            None => Err("its mysqld is not managed yet".to_owned()),
            Some(mysql) if mysql.following || !mysql.applies => Ok(()),
            Some(mysql) => Err(mysql.trouble.clone().unwrap_or_else(|| mysql.role.clone())),
        }
    }
}
