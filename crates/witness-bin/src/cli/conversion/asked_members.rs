//! The configured members, reached over their admin calls.

use std::sync::{Mutex, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use member::conversion::{ConversionMembers, MemberPlace, RingSeen};
use member::protocol::{
    CommandResult, MysqldAnswer, MysqldOrder, OperatorCommand, Refusal, RefusalKind,
};
use member::settings::Settings;
use raft_types::MemberId;
use tokio::time::Instant;

use crate::cli::session::another_answer;
use crate::operator::{Asker, Directory, RingReport};
use crate::terminal::{Attempt, Exit};

pub(super) struct AskedMembers {
    asker: Asker,
    /// The last answers of all members.
    last: Mutex<Option<RingReport>>,
}

impl AskedMembers {
    /// # Errors
    /// Exit 2 when the configured files for TLS cannot be used.
    pub(super) fn of(settings: &Settings) -> Attempt<Self> {
        let asker = Asker::new(settings);
        let asker = asker.map_err(|error| Exit::Usage.because(error, ""))?;
        Ok(Self {
            asker,
            last: Mutex::new(None),
        })
    }

    async fn report(&self) -> RingReport {
        let report = self.asker.report().await;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(report.clone());
        report
    }

    async fn last_report(&self) -> RingReport {
        let last = self.last.lock();
        let last = last.unwrap_or_else(PoisonError::into_inner).clone();
        match last {
            Some(report) => report,
            None => self.report().await,
        }
    }

    async fn command(
        &self,
        place: &MemberPlace,
        command: OperatorCommand,
        until: Instant,
    ) -> Attempt<CommandResult> {
        let directory = Directory::of(&self.last_report().await);
        let address = match directory.get(place.id) {
            Some(address) => address,
            None => directory.find(&place.name)?,
        };
        let ordered = self.asker.at(address, &directory, &command, until, |_| {});
        ordered.await
    }
}

impl ConversionMembers for AskedMembers {
    fn ring(&self) -> BoxFuture<'_, RingSeen> {
        async {
            let report = self.report().await;
            RingSeen {
                leader: report.leader,
                members: report
                    .members
                    .into_iter()
                    .map(|member| {
                        let place = MemberPlace {
                            id: member.entry.id,
                            name: member.entry.name,
                            kind: member.entry.kind,
                            address: member.entry.address,
                        };
                        let error = member.error;
                        let silent = || {
                            let why = error.unwrap_or_else(|| "it does not answer".to_owned());
                            Refusal::new(RefusalKind::NoQuorum, why, "")
                        };
                        (place, member.view.ok_or_else(silent))
                    })
                    .collect(),
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
        async move {
            let command = OperatorCommand::Mysqld { order };
            match self.command(member, command, until).await? {
                CommandResult::Mysqld(answer) => Ok(*answer),
                other => Err(another_answer(&other).into()),
            }
        }
        .boxed()
    }

    fn bootstrap<'a>(
        &'a self,
        member: &'a MemberPlace,
        origin: String,
        until: Instant,
    ) -> BoxFuture<'a, Result<(), Refusal>> {
        async move {
            let command = OperatorCommand::Bootstrap { origin };
            match self.command(member, command, until).await? {
                CommandResult::Bootstrapped(_) => Ok(()),
                other => Err(another_answer(&other).into()),
            }
        }
        .boxed()
    }

    fn promote(&self, to: MemberId, until: Instant) -> BoxFuture<'_, Result<(), Refusal>> {
        async move {
            let report = self.last_report().await;
            let command = OperatorCommand::Promote { to, force: true };
            let promoted = self.asker.lead(&report, &command, until, |_| {});
            promoted.await?;
            Ok(())
        }
        .boxed()
    }
}
