//! Views for tests, one for each kind of member.

use consensus::quorum::{RegionQuorum, VoterSetHealth};
use raft_types::{
    FormatRange, FormatVersion, Incarnation, MemberId, MemberKind, MemberRecord, OpId, Region,
    RingId,
};

use crate::status::mysql_view::{MysqlView, MysqldState};
use crate::status::replication_routes::{FallbackView, LinkView, ReplicationRoutesView, SentView};
use crate::status::{
    ActivityView, ArchiveView, ConsumerView, FormatsView, GtidText, HooksView, LogView,
    LoggedMember, MemberName, MemberView, PeerView, QuorumView, RingName, Role, RoleState,
    TimersView, WriteFenceState,
};

/// Returns the view of a leading database member with everything in order.
pub fn database_leader() -> MemberView {
    let mut view = witness_follower();
    view.member.id = MemberId(1);
    view.member.name = "db-1".into();
    view.member.kind = MemberKind::Database;
    view.member.address = "10.0.0.1:7400".into();
    view.role = Role::Leader;
    view.serving = true;
    view.regions = vec![RegionQuorum {
        region: Region("north".into()),
        voters: [1, 2, 3].map(MemberId).into(),
        healthy: [1, 2, 3].map(MemberId).into(),
        required: 2,
        in_force: true,
        held_by_majority: Some(OpId::new(3, 42)),
        held_by_any: Some(OpId::new(3, 42)),
        held_back_by: None,
    }];
    view.voter_set_health = vec![VoterSetHealth {
        required: 2,
        answering: [1, 2, 3].map(MemberId).into(),
        silent: [].into(),
    }];
    view.peers = vec![PeerView {
        id: MemberId(2),
        name: "witness-1".into(),
        region: Region("north".into()),
        kind: MemberKind::Witness,
        address: "10.0.0.2:7400".into(),
        voter: true,
        matched: Some(OpId::new(3, 40)),
        behind_entries: Some(2),
        answered_seconds: Some(0.1),
    }];
    view.mysql = Some(MysqlView {
        mode: "child".into(),
        state: MysqldState::Running,
        version: Some("9.7.4".into()),
        ingesting: true,
        examined_ms: Some(200),
        protected: true,
        writable: true,
        write_fence: WriteFenceState::Open,
        oldest_unacked_seconds: Some(0.002),
        acknowledged_total: 7,
        acks_total: 5,
        role: RoleState::Primary,
        applies: true,
        ..MysqlView::default()
    });
    view.replication_routes = Some(ReplicationRoutesView {
        sent: vec![SentView {
            member: MemberId(2),
            direct_entries_total: 40,
            direct_bytes_total: 4000,
            proxied_entries_total: 2,
            spared_bytes_total: 200,
        }],
        links: vec![LinkView {
            member: MemberId(2),
            entries_bytes_total: 4400,
            op_ids_bytes_total: 12,
            heartbeats_bytes_total: 300,
        }],
        fallbacks: vec![FallbackView {
            proxy: MemberId(2),
            reason: "silent".into(),
            times_total: 1,
        }],
        ..ReplicationRoutesView::default()
    });
    view.archive = Some(ArchiveView {
        url: "s3://backups/orders".into(),
        archived: Some("binlog.000007:4".into()),
        ..ArchiveView::default()
    });
    view.hooks = Some(HooksView::default());
    view.consumers = Some(vec![ConsumerView {
        name: "replica-1:3306".into(),
        address: "10.0.0.9:40000".into(),
        server_id: 9,
        server_uuid: None,
        asked_by: "gtids".into(),
        file: "binlog.000001".into(),
        position: 4000,
        behind_bytes: 96,
        queued_bytes: 32,
        attached_seconds: 7.5,
    }]);
    view
}

/// Returns the view of a witness that follows, the same as its `/status`.
pub fn witness_follower() -> MemberView {
    MemberView {
        ring: RingName {
            id: Some(RingId::default()),
            name: "orders".into(),
        },
        member: MemberName {
            id: MemberId(2),
            name: "witness-1".into(),
            region: Region("north".into()),
            kind: MemberKind::Witness,
            votes: true,
            address: "10.0.0.2:7400".into(),
            incarnation: Incarnation::default(),
        },
        version: "0.1.0".into(),
        uptime_seconds: 12.5,
        role: Role::Follower,
        leader: Some(MemberId(1)),
        term: 3,
        log_end: Some(OpId::new(3, 42)),
        committed: Some(OpId::new(3, 42)),
        log: LogView {
            file: "binlog.000001".into(),
            file_bytes: 4096,
            gtid_set: "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-40"
                .parse()
                .map_or_else(|_| GtidText::default(), GtidText),
            durability: "fsync".into(),
            log_bytes: 4096,
            disk_free_bytes: 1 << 30,
            disk_left_bytes: 3 << 28,
            ..LogView::default()
        },
        activity: ActivityView {
            appended_entries_total: 42,
            ..ActivityView::default()
        },
        quorum: QuorumView {
            ok: true,
            ..QuorumView::default()
        },
        voter_sets: vec![[1, 2, 3].map(MemberId).into()],
        members: vec![
            roster(1, "db-1", MemberKind::Database),
            roster(2, "witness-1", MemberKind::Witness),
            roster(3, "witness-2", MemberKind::Witness),
        ],
        timers: Some(TimersView {
            heartbeat_ms: 500,
            lease_ms: 750,
        }),
        formats: Some(FormatsView {
            speaks: FormatRange::OF_THIS_PROGRAM,
            ring: Some(FormatVersion::FIRST),
            refused: None,
            others: Vec::new(),
        }),
        ..MemberView::default()
    }
}

fn roster(id: u64, name: &str, kind: MemberKind) -> LoggedMember {
    LoggedMember {
        id: MemberId(id),
        voter: true,
        record: MemberRecord {
            name: name.into(),
            region: Region("north".into()),
            kind,
            votes: true,
            address: format!("10.0.0.{id}:7400"),
            ..MemberRecord::default()
        },
    }
}
