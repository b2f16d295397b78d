//! Runs an operator's `witness enable-raft` or `disable-raft` on a host, with the product's code over simulated admin calls.

use std::path::PathBuf;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use member::conversion::{
    Conversion, ConversionMembers, Course, Direction, MemberPlace, ReplicationAccount, RingSeen,
};
use member::protocol::{MysqldAnswer, MysqldOrder, Refusal, RefusalKind};
use mysql_link::ConnectOptions;
use mysqld_server::SourceTls;
use raft_types::MemberId;
use tokio::time::Instant;

use crate::member::admin_calls::{AdminCalls, Answer, PATIENCE, Question, Status};
use crate::member::without_folder_names;
use crate::record::Record;
use crate::shared::Shared;

/// A run of the command.
pub(crate) struct ConversionCommand {
    pub(crate) direction: Direction,
    pub(crate) own: MemberPlace,
    pub(crate) data_dir: PathBuf,
    pub(crate) connect: ConnectOptions,
    /// All members of the configuration.
    pub(crate) places: Vec<MemberPlace>,
    pub(crate) calls: AdminCalls,
    /// The value of `--timeout`.
    pub(crate) patience: Duration,
    pub(crate) record: Record,
}

impl ConversionCommand {
    /// Runs the command until it ends.
    ///
    /// # Errors
    /// The command's error output, without the paths of its files.
    pub(crate) async fn run(self) -> Result<(), String> {
        let folder = self.data_dir.display().to_string();
        let members = CalledMembers {
            own: self.own.id,
            places: self.places,
            calls: self.calls,
            leader: Shared::default(),
        };
        let conversion = Conversion {
            direction: self.direction,
            members: &members,
            own: self.own.id,
            name: self.own.name,
            data_dir: self.data_dir,
            connect: self.connect,
            stock: Vec::new(),
            binlog_server: None,
            account: ReplicationAccount {
                source: None,
                login: Some(("root".to_owned(), "".into())),
            },
            source_tls: SourceTls::Off,
            until: Instant::now() + self.patience,
        };
        // Messages of other members contain the paths of their directories.
        let ended = go(&conversion, &self.record).await;
        ended.map_err(|why| without_folder_names(&why.replace(&folder, "DIR")))
    }
}

async fn go(conversion: &Conversion<'_>, record: &Record) -> Result<(), String> {
    let told = |failure: Refusal| failure.to_string();
    let mut course = Course::of(conversion).await.map_err(told)?;
    let obstacles = &course.obstacles;
    if !obstacles.is_empty() {
        let words: Vec<String> = obstacles.iter().map(ToString::to_string).collect();
        return Err(words.join("; "));
    }
    if course.is_done() {
        return Ok(());
    }
    let done = course.carry_out(|step, _| record.note(&format!("the command has done: {step}")));
    done.await.map(drop).map_err(told)
}

struct CalledMembers {
    own: MemberId,
    places: Vec<MemberPlace>,
    calls: AdminCalls,
    /// The last leader that the command knew.
    leader: Shared<Option<MemberId>>,
}

impl CalledMembers {
    async fn status(&self, place: &MemberPlace) -> Result<Status, &'static str> {
        let until = Instant::now() + PATIENCE;
        self.calls
            .ask(self.own, place.id, until, Question::Status)
            .await
    }

    async fn ask<T>(
        &self,
        to: MemberId,
        until: Instant,
        question: impl FnOnce(Answer<Result<T, Refusal>>) -> Question,
    ) -> Result<T, Refusal> {
        match self.calls.ask(self.own, to, until, question).await {
            Ok(answer) => answer,
            Err(why) => Err(Refusal::new(RefusalKind::Unknown, why, "")),
        }
    }
}

impl ConversionMembers for CalledMembers {
    fn ring(&self) -> BoxFuture<'_, RingSeen> {
        async {
            let asked = join_all(self.places.iter().map(|place| self.status(place))).await;
            let all = self.places.iter().zip(&asked);
            let serving =
                all.filter_map(|(place, status)| Some((status.as_ref().ok()?.serves?, place.id)));
            let leader = serving.max().map(|(_, id)| id);
            *self.leader.lock() = leader;
            let said = asked.into_iter().map(|status| match status {
                Ok(status) => Ok(status.said),
                Err(why) => Err(Refusal::new(RefusalKind::NoQuorum, why, "")),
            });
            RingSeen {
                leader,
                members: self.places.iter().cloned().zip(said).collect(),
            }
        }
        .boxed()
    }

    fn order<'a>(
        &'a self,
        member: &'a MemberPlace,
        order: MysqldOrder,
        until: Instant,
    ) -> BoxFuture<'a, Result<MysqldAnswer, Refusal>> {
        self.ask(member.id, until, |answer| Question::Order(order, answer))
            .boxed()
    }

    fn bootstrap<'a>(
        &'a self,
        member: &'a MemberPlace,
        origin: String,
        until: Instant,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        self.ask(member.id, until, |answer| {
            Question::Bootstrap(origin, answer)
        })
        .boxed()
    }

    fn promote(&self, to: MemberId, until: Instant) -> BoxFuture<'_, Result<(), Refusal>> {
        async move {
            let leader = *self.leader.lock();
            let leader = leader.ok_or_else(|| Refusal::failed("no member leads", ""))?;
            let question = |answer| Question::Promote(to, answer);
            self.ask(leader, until, question).await
        }
        .boxed()
    }
}
