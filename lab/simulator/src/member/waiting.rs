//! The process of a member without a ring. It answers calls, and waits until another member bootstraps the ring or until it is ordered to
//! bootstrap the ring itself. Then it opens its log and takes part.

use std::collections::BTreeMap;
use std::time::Duration;

use raft_types::{MemberId, MemberRecord};
use ring_admin::{LogOrigin, RingState};
use tokio::sync::mpsc;
use transport::bootstrap_ring;

use crate::member::admin_calls::{AdminCall, FoundingMember};
use crate::member::answering::{Answering, BootstrapOrder};
use crate::member::asking::OpenFailure;
use crate::member::directory::Directory;
use crate::member::process::Process;
use crate::member::process_setup::Surroundings;
use crate::network::MessageQueue;
use crate::tick::Tick;

/// Interval at which the member checks whether it has a ring.
const LOOK: Duration = Duration::from_millis(50);
/// How long the member waits for the other members while an operator's command waits.
const ORDERED_PATIENCE: Duration = Duration::from_secs(10);
/// How long the member waits for the other members without an operator's command.
const PATIENCE: Duration = Duration::from_secs(365 * 86_400);

/// The first membership, if this member must bootstrap the ring.
pub(super) type FirstMembers = Option<BTreeMap<MemberId, MemberRecord>>;

/// The process of a member that waits for a ring.
pub(crate) struct Waiting {
    around: Surroundings,
    queue: MessageQueue,
    answering: Answering,
    come: mpsc::UnboundedReceiver<FirstMembers>,
}

impl Waiting {
    pub(super) fn new(around: Surroundings, directory: &Directory, queue: &MessageQueue) -> Self {
        let (orders, ordered) = mpsc::channel(1);
        let (come, has_come) = mpsc::unbounded_channel();
        let (joining, own) = (directory.clone(), around.setup.id);
        around.runtime.spawn(async move {
            // If the process has ended, there is no receiver.
            drop(come.send(join(own, &joining, ordered).await));
        });
        let mut answering = Answering::new(&around.setup, directory);
        answering.orders = Some(orders);
        Self {
            answering,
            around,
            queue: queue.clone(),
            come: has_come,
        }
    }

    /// Runs the process until `now`. Returns whether the member has a ring; then [`Waiting::end`] continues the process.
    pub(crate) fn run_until(&mut self, now: Tick) -> bool {
        self.around.run_until(now);
        !self.come.is_empty()
    }

    /// Returns the process, which now takes part in the ring.
    ///
    /// # Errors
    /// The log cannot be opened.
    pub(crate) fn end(mut self) -> Result<Process, OpenFailure> {
        let first_members = self.come.try_recv().unwrap_or_default();
        Process::enter(self.around, self.queue, first_members)
    }

    pub(crate) fn answer(&self, call: AdminCall) {
        self.around
            .runtime
            .spawn(self.answering.clone().answer(call.question));
    }
}

/// Waits until the member has a ring, without a time limit.
async fn join(
    own: MemberId,
    directory: &Directory,
    mut ordered: mpsc::Receiver<BootstrapOrder>,
) -> FirstMembers {
    if let RingState::Bootstrapping { .. } = directory.state()
        && let Ok(members) = found(own, directory, &directory.book.origin(), PATIENCE).await
    {
        return Some(members);
    }
    loop {
        let order = tokio::select! {
            biased;
            () = taken_in(directory) => return None,
            order = ordered.recv() => order,
        };
        let Some(BootstrapOrder { origin, failed }) = order else {
            taken_in(directory).await;
            return None;
        };
        // A bootstrap that has begun keeps its origin.
        let origin = match directory.state() {
            RingState::Bootstrapping { .. } => directory.book.origin(),
            _ => origin,
        };
        match found(own, directory, &origin, ORDERED_PATIENCE).await {
            Ok(members) => return Some(members),
            Err(why) => drop(failed.send(why)),
        }
    }
}

async fn taken_in(directory: &Directory) {
    while !matches!(directory.state(), RingState::Belongs { .. }) {
        tokio::time::sleep(LOOK).await;
    }
}

async fn found(
    own: MemberId,
    directory: &Directory,
    origin: &LogOrigin,
    patience: Duration,
) -> Result<BTreeMap<MemberId, MemberRecord>, String> {
    let calls = FoundingMember {
        own,
        calls: directory.calls.clone(),
    };
    let (book, configured) = (&directory.book, &directory.configured);
    let plan = bootstrap_ring(&calls, book, true, origin, configured, patience).await;
    plan.map(|plan| plan.members)
        .map_err(|error| error.to_string())
}
