//! Making a ring: the one member started with `--bootstrap` asks all configured members who they are,
//! and hands the new ring's id to them. Every step is durable before the next one and can be
//! repeated, so a founder that was stopped in between goes on where it was. What may become a ring is
//! decided by [`consensus::plan_founding`]; here it is carried out.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use consensus::{
    FoundingPlan, FoundingRefusal, IdentityBook, IdentityError, Introduction, plan_founding,
};
use raft_types::{Incarnation, MemberId, MemberRecord, RingId};
use thiserror::Error;

use crate::config::{Config, MemberEntry};

/// The calls to members that do not know their ring yet.
#[async_trait]
pub trait FoundingCalls: Send + Sync {
    /// Asks who answers at a member's address.
    ///
    /// # Errors
    /// In words, why nobody does.
    async fn introduce(&self, member: &MemberEntry) -> Result<Introduction, String>;

    /// Hands the ring's id to a member, which has it on its disk when it answers.
    ///
    /// # Errors
    /// In words, why it does not take it.
    async fn adopt(&self, member: &MemberEntry, ring: RingId) -> Result<(), String>;
}

/// Why a ring was not made.
#[derive(Debug, Error)]
pub enum FoundingError {
    /// The configured members cannot become a ring.
    #[error(transparent)]
    Refused(#[from] FoundingRefusal),
    /// This member's own identity does not allow it.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// How long to wait before members that did not answer are asked again.
const AGAIN: Duration = Duration::from_millis(500);

/// The first membership, before the data directories are known.
pub fn configured_members(config: &Config) -> BTreeMap<MemberId, MemberRecord> {
    config
        .members
        .iter()
        .map(|entry| (entry.id, record_of(entry)))
        .collect()
}

fn record_of(entry: &MemberEntry) -> MemberRecord {
    MemberRecord {
        name: entry.name.clone(),
        region: entry.region.clone(),
        kind: entry.kind,
        votes: entry.votes,
        address: entry.address.clone(),
        incarnation: Incarnation::default(),
    }
}

/// Makes the ring up to where only its first entry is missing: every member has its id. Members that
/// do not answer yet are waited for.
///
/// # Errors
/// [`FoundingError`] when waiting cannot help.
pub async fn prepare_ring(
    config: &Config,
    book: &IdentityBook,
    calls: &dyn FoundingCalls,
    own_log_is_empty: impl Fn() -> Option<bool>,
) -> Result<FoundingPlan, FoundingError> {
    let configured = configured_members(config);
    let new_ring = RingId::random();
    let mut said = String::new();
    loop {
        let own = Introduction {
            identity: book.identity(),
            log_is_empty: own_log_is_empty(),
        };
        let (introductions, silent) = introductions(config, own, calls).await;
        match plan_founding(&own.identity, &configured, &introductions, new_ring) {
            Ok(plan) => {
                book.begin_founding(plan.ring)?;
                match hand_out(config, &plan, calls).await {
                    Ok(()) => return Ok(plan),
                    Err(why) => say_once(&mut said, &why),
                }
            }
            Err(refusal) if refusal.may_pass() => {
                let why = silent.unwrap_or_else(|| refusal.to_string());
                say_once(&mut said, &why);
            }
            Err(refusal) => return Err(refusal.into()),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Logs what is waited for, once for each reason.
fn say_once(said: &mut String, why: &str) {
    if said != why {
        tracing::info!("the ring cannot be made yet: {why}");
        why.clone_into(said);
    }
}

async fn introductions(
    config: &Config,
    own: Introduction,
    calls: &dyn FoundingCalls,
) -> (BTreeMap<MemberId, Introduction>, Option<String>) {
    let others = config
        .members
        .iter()
        .filter(|member| member.id != config.own.id);
    let asked = others.map(async |member| (member, calls.introduce(member).await));
    let mut known = BTreeMap::from([(config.own.id, own)]);
    let mut silent = None;
    for (member, answer) in futures::future::join_all(asked).await {
        match answer {
            Ok(introduction) => {
                known.insert(member.id, introduction);
            }
            Err(why) => {
                let MemberEntry { name, address, .. } = member;
                silent = silent.or(Some(format!(
                    "`{name}` at {address} does not answer: {why}"
                )));
            }
        }
    }
    (known, silent)
}

async fn hand_out(
    config: &Config,
    plan: &FoundingPlan,
    calls: &dyn FoundingCalls,
) -> Result<(), String> {
    for member in config
        .members
        .iter()
        .filter(|member| member.id != config.own.id)
    {
        let adopted = calls.adopt(member, plan.ring).await;
        adopted.map_err(|why| format!("`{}` does not join: {why}", member.name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use consensus::{Identity, RingState};

    use super::*;
    use crate::config::{Sources, read};

    struct NoFile;

    impl consensus::IdentityFile for NoFile {
        fn write(&self, _: &Identity) -> io::Result<()> {
            Ok(())
        }
    }

    /// Members in memory; the first calls of each fail.
    struct Members {
        books: BTreeMap<MemberId, IdentityBook>,
        failures: Mutex<u32>,
    }

    impl Members {
        fn new(ids: &[u64], failures: u32) -> Self {
            let book = |id: &u64| {
                let id = MemberId(*id);
                (id, IdentityBook::new(Identity::fresh(id), Box::new(NoFile)))
            };
            Self {
                books: ids.iter().map(book).collect(),
                failures: Mutex::new(failures),
            }
        }

        fn fails(&self) -> Result<(), String> {
            let mut failures = self.failures.lock().unwrap();
            if *failures == 0 {
                return Ok(());
            }
            *failures -= 1;
            Err("not yet".into())
        }
    }

    #[async_trait]
    impl FoundingCalls for Members {
        async fn introduce(&self, member: &MemberEntry) -> Result<Introduction, String> {
            self.fails()?;
            Ok(Introduction {
                identity: self.books[&member.id].identity(),
                log_is_empty: Some(true),
            })
        }

        async fn adopt(&self, member: &MemberEntry, ring: RingId) -> Result<(), String> {
            self.fails()?;
            self.books[&member.id]
                .adopt(ring)
                .map_err(|error| error.to_string())
        }
    }

    fn config() -> Config {
        let text = r#"
            data_dir = "d"
            ring.name = "r"
            member.id = 1
            members = [
                { id = 1, name = "a", region = "x", kind = "witness", address = "h:1" },
                { id = 2, name = "b", region = "x", kind = "witness", address = "h:2" },
                { id = 3, name = "c", region = "x", kind = "witness", address = "h:3" },
            ]"#;
        let file = Some(("f".to_owned(), text.to_owned()));
        let (config, problems) = read(&Sources {
            file,
            ..Sources::default()
        });
        config.unwrap_or_else(|| panic!("{problems}"))
    }

    #[tokio::test(start_paused = true)]
    async fn members_that_come_late_are_waited_for() {
        let others = Members::new(&[2, 3], 7);
        let own = IdentityBook::new(Identity::fresh(MemberId(1)), Box::new(NoFile));
        let plan = prepare_ring(&config(), &own, &others, || Some(true))
            .await
            .unwrap();
        assert_eq!(own.identity().ring, RingState::Founding { ring: plan.ring });
        for (id, book) in &others.books {
            assert_eq!(book.identity().ring, RingState::Belongs { ring: plan.ring });
            assert_eq!(plan.members[id].incarnation, book.identity().incarnation);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_founder_that_was_stopped_goes_on_with_the_same_ring() {
        let others = Members::new(&[2, 3], 0);
        let own = IdentityBook::new(Identity::fresh(MemberId(1)), Box::new(NoFile));
        let begun = RingId::random();
        own.begin_founding(begun).unwrap();
        others.books[&MemberId(2)].adopt(begun).unwrap();
        let plan = prepare_ring(&config(), &own, &others, || Some(true))
            .await
            .unwrap();
        assert_eq!(plan.ring, begun);
    }

    #[tokio::test(start_paused = true)]
    async fn a_member_of_another_ring_ends_it_and_nothing_is_changed() {
        let others = Members::new(&[2, 3], 0);
        others.books[&MemberId(3)].adopt(RingId::random()).unwrap();
        let own = IdentityBook::new(Identity::fresh(MemberId(1)), Box::new(NoFile));
        let refused = prepare_ring(&config(), &own, &others, || Some(true))
            .await
            .unwrap_err();
        assert!(
            refused.to_string().contains("member 3 belongs to ring"),
            "{refused}"
        );
        assert_eq!(own.identity().ring, RingState::Fresh);
        assert_eq!(others.books[&MemberId(2)].identity().ring, RingState::Fresh);
    }
}
