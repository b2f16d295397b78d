//! A ring is bootstrapped once, from fresh running members. All other attempts are refused with a reason.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use consensus::{AppliedFloor, MemberConfig};
use raft_types::MemberKind::{Database, Witness};
use raft_types::{Incarnation, MemberId, MemberRecord, RingId};
use ring_admin::{
    Identity, IdentityBook, IdentityFile, IdentityPages, LogOrigin, Member, Party, RingState,
};
use transport::{
    AdminCalls, AdminClient, AdminError, GrpcNetworkFactory, LocalMember, NetworkOptions,
    RingBootstrapError, RunningServer, bootstrap_ring, serve,
};

use crate::support::grpc_ring::{NoStatus, TIMERS, listener, record, within};
use crate::support::memory_log::MemoryDisk;

/// The content of an identity file.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Option<Identity>>>);

impl IdentityFile for Kept {
    fn write(&self, pages: &IdentityPages) -> std::io::Result<()> {
        *self.0.lock().unwrap() = Some(pages.identity);
        Ok(())
    }
}

struct Newcomer {
    book: Arc<IdentityBook>,
    kept: Kept,
    local: Arc<LocalMember>,
    _server: RunningServer,
}

/// Starts members for the first time. Returns them, and the bootstrapping member's configuration.
async fn newcomers() -> (
    BTreeMap<MemberId, Newcomer>,
    BTreeMap<MemberId, MemberRecord>,
) {
    let mut members = BTreeMap::new();
    let mut configured = BTreeMap::new();
    for (id, kind) in [(1, Database), (2, Witness), (3, Witness)] {
        let id = MemberId(id);
        let (listener, address) = listener().await;
        let kept = Kept::default();
        let identity = Identity::fresh(id);
        let book = Arc::new(IdentityBook::new(
            identity,
            LogOrigin::default(),
            Box::new(kept.clone()),
        ));
        let local = Arc::new(LocalMember::new(book.clone(), Arc::new(NoStatus)));
        let server = serve(listener, local.clone(), None, &config()).unwrap();
        let entry = MemberRecord {
            incarnation: Incarnation::default(),
            ..record(id, kind, address)
        };
        configured.insert(id, entry);
        let newcomer = Newcomer {
            book,
            kept,
            local,
            _server: server,
        };
        members.insert(id, newcomer);
    }
    (members, configured)
}

fn config() -> transport::TransportConfig {
    transport::TransportConfig::for_timers(&TIMERS)
}

fn admin(record: &MemberRecord) -> AdminClient {
    AdminClient::new(&record.address, None, config()).unwrap()
}

const BOOTSTRAPPING: MemberId = MemberId(1);
const SOON: Duration = Duration::from_millis(500);

#[tokio::test]
async fn fresh_members_become_a_ring_that_commits() {
    let (members, configured) = newcomers().await;
    let book = &members[&BOOTSTRAPPING].book;
    let plan = bootstrap_ring(
        &AdminCalls(None, config()),
        book,
        true,
        &LogOrigin::default(),
        &configured,
        SOON,
    )
    .await
    .unwrap();
    for (id, newcomer) in &members {
        let identity = newcomer.book.identity();
        assert_eq!(plan.members[id].incarnation, identity.incarnation);
        assert_eq!(identity.ring.ring(), Some(plan.ring));
        assert_eq!(
            *newcomer.kept.0.lock().unwrap(),
            Some(identity),
            "on disk before it is said"
        );
    }
    assert_eq!(
        book.identity().ring,
        RingState::Bootstrapping { ring: plan.ring }
    );

    let mut running = Vec::new();
    for (id, newcomer) in &members {
        let kind = configured[id].kind;
        let member_config = MemberConfig {
            timers: TIMERS,
            ..MemberConfig::new(plan.ring, *id, kind)
        };
        let options = NetworkOptions {
            config: config(),
            ..NetworkOptions::default()
        };
        let factory = GrpcNetworkFactory::new(newcomer.book.clone(), options);
        let calls = Arc::new(factory.clone());
        let disk = MemoryDisk::default();
        let (floor, starts) = (AppliedFloor::default(), Arc::new(disk.clone()));
        let member = Member::start(member_config, disk.open(), factory, calls, floor, starts);
        let member = member.await.unwrap();
        let _ = newcomer.local.inbound.set(member.inbound());
        running.push(member);
    }
    running[0].bootstrap(plan.members.clone()).await.unwrap();
    book.bootstrapped().unwrap();
    for member in &running {
        let mut committed = member.committed();
        within("a commit", committed.wait_for(Option::is_some))
            .await
            .unwrap();
    }

    // A second attempt is refused, whichever member makes it.
    for (id, newcomer) in &members {
        let again = bootstrap_ring(
            &AdminCalls(None, config()),
            &newcomer.book,
            false,
            &LogOrigin::default(),
            &configured,
            SOON,
        )
        .await;
        let refusal = again.unwrap_err().to_string();
        let words = format!("member {id} belongs to ring {} already", plan.ring);
        assert!(refusal.contains(&words), "{refusal}");
    }
    let introduction = admin(&configured[&MemberId(2)]).identify().await.unwrap();
    assert_eq!(introduction.log_is_empty, Some(false));
}

#[tokio::test]
async fn a_member_of_another_ring_prevents_the_bootstrap() {
    let (members, configured) = newcomers().await;
    let theirs = RingId::random();
    members[&MemberId(3)]
        .book
        .adopt(theirs, &LogOrigin::default())
        .unwrap();
    let book = &members[&BOOTSTRAPPING].book;
    let refused = bootstrap_ring(
        &AdminCalls(None, config()),
        book,
        true,
        &LogOrigin::default(),
        &configured,
        SOON,
    )
    .await;
    let refusal = refused.unwrap_err().to_string();
    assert!(
        refusal.contains(&format!("member 3 belongs to ring {theirs} already")),
        "{refusal}"
    );
    assert_eq!(book.identity().ring, RingState::Fresh, "nothing was begun");
    assert_eq!(members[&MemberId(2)].book.identity().ring, RingState::Fresh);
}

#[tokio::test]
async fn a_member_that_is_down_is_waited_for_and_then_named() {
    let (mut members, configured) = newcomers().await;
    members.remove(&MemberId(2));
    let book = &members[&BOOTSTRAPPING].book;
    let refused = bootstrap_ring(
        &AdminCalls(None, config()),
        book,
        true,
        &LogOrigin::default(),
        &configured,
        SOON,
    )
    .await
    .unwrap_err();
    let words = refused.to_string();
    assert!(
        words.contains("member 2 did not say who it is") && words.contains("does not answer"),
        "{words}"
    );
    assert!(matches!(refused, RingBootstrapError::Refused { .. }));
    assert_eq!(book.identity().ring, RingState::Fresh);
}

#[tokio::test]
async fn an_interrupted_bootstrap_continues_with_the_same_ring() {
    let (members, configured) = newcomers().await;
    let book = &members[&BOOTSTRAPPING].book;
    let ring = RingId::random();
    book.begin_bootstrap(ring, &LogOrigin::default()).unwrap();
    let plan = bootstrap_ring(
        &AdminCalls(None, config()),
        book,
        true,
        &LogOrigin::default(),
        &configured,
        SOON,
    )
    .await
    .unwrap();
    assert_eq!(plan.ring, ring);
    assert_eq!(
        members[&MemberId(3)].book.identity().ring,
        RingState::Belongs { ring }
    );

    // A second member that was also started with --bootstrap is refused.
    let other = &members[&MemberId(3)].book;
    let refused = bootstrap_ring(
        &AdminCalls(None, config()),
        other,
        true,
        &LogOrigin::default(),
        &configured,
        SOON,
    )
    .await;
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("start it without bootstrapping it")
    );
}

#[tokio::test]
async fn only_the_addressed_data_directory_adopts_a_ring() {
    let (members, configured) = newcomers().await;
    let target = &configured[&MemberId(2)];
    let ring = RingId::random();
    let party = Party {
        member: MemberId(2),
        incarnation: members[&MemberId(2)].book.identity().incarnation,
    };
    let wrong_directory = Party {
        incarnation: Incarnation::random(),
        ..party
    };
    let refused = admin(target)
        .adopt(ring, wrong_directory, &LogOrigin::default())
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, AdminError::Refused { reason, .. } if reason.contains("but this is member 2 with")),
        "{refused}"
    );

    admin(target)
        .adopt(ring, party, &LogOrigin::default())
        .await
        .unwrap();
    admin(target)
        .adopt(ring, party, &LogOrigin::default())
        .await
        .unwrap();
    let refused = admin(target)
        .adopt(RingId::random(), party, &LogOrigin::default())
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("a data directory never changes its ring"),
        "{refused}"
    );

    let introduction = admin(target).identify().await.unwrap();
    assert_eq!(introduction.identity, members[&MemberId(2)].book.identity());
    assert_eq!(introduction.log_is_empty, None, "its log is not open yet");
    let status = admin(target).status().await.unwrap();
    assert_eq!(&status[..], b"{\"words\":\"nothing to say\"}");
}
