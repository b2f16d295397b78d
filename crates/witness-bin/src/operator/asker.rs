//! Asks the members of a ring for their views concurrently, each with a deadline.

use std::sync::Arc;
use std::time::Duration;

use consensus::Timers;
use member::settings::{MemberEntry, Settings, TlsSettings};
use member::status::{MemberView, ViewSource};
use raft_types::MemberId;
use transport::{AdminClient, AdminError, TlsError, TlsMaterial, TransportConfig};

/// Time limit for a member's answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks the members of one ring.
pub struct Asker {
    pub(super) ring: RingSource,
    /// The member's own view, when a member asks the others.
    pub(crate) own: Option<(MemberId, Arc<dyn ViewSource>)>,
    tls: Option<TlsMaterial>,
    transport: TransportConfig,
}

/// How the members are known.
pub(crate) enum RingSource {
    /// From a configuration.
    Configured {
        ring: String,
        members: Vec<MemberEntry>,
    },
    /// From the answers at these addresses.
    Endpoints(Vec<String>),
}

impl Asker {
    /// For the members of this configuration.
    ///
    /// # Errors
    /// When the TLS files cannot be used.
    pub fn new(settings: &Settings) -> Result<Self, TlsError> {
        let tls = settings.tls.as_ref().map(TlsSettings::load_for_commands);
        let tls = tls.transpose()?;
        Ok(Self::of_ring(settings, tls))
    }

    /// For the member with this configuration: asks the others with its TLS settings, and uses its own view.
    pub fn of_member(
        settings: &Settings,
        tls: Option<TlsMaterial>,
        view: Arc<dyn ViewSource>,
    ) -> Self {
        let mut asker = Self::of_ring(settings, tls);
        asker.own = Some((settings.own.id, view));
        // The member's client repeats its question.
        asker.transport.lookup_limit = PATIENCE;
        asker
    }

    /// For the ring of the members at these addresses; one answer is enough.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of_endpoints(endpoints: &[String], tls: Option<&TlsSettings>) -> Result<Self, TlsError> {
        let tls = tls.map(TlsSettings::load_for_commands).transpose()?;
        Ok(Self::of(RingSource::Endpoints(endpoints.to_vec()), tls))
    }

    fn of_ring(settings: &Settings, tls: Option<TlsMaterial>) -> Self {
        let (ring, members) = (settings.ring_name.clone(), settings.members.clone());
        Self::of(RingSource::Configured { ring, members }, tls)
    }

    pub(crate) fn of(ring: RingSource, tls: Option<TlsMaterial>) -> Self {
        Self {
            ring,
            own: None,
            tls,
            transport: TransportConfig {
                connect_deadline: PATIENCE,
                call_deadline: PATIENCE,
                ..TransportConfig::for_timers(&Timers::default())
            },
        }
    }

    /// With another limit for each member's answer.
    #[must_use]
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.transport.connect_deadline = limit;
        self.transport.call_deadline = limit;
        self
    }

    pub(super) async fn ask_all(&self, members: Vec<MemberEntry>, configured: bool) -> Vec<Asked> {
        let asked = members.into_iter().map(async |entry| Asked {
            answer: self.ask(&entry).await,
            entry,
            configured,
        });
        futures::future::join_all(asked).await
    }

    /// A client for the member at an address, with the TLS and time limit of a configured member.
    ///
    /// # Errors
    /// When the address is invalid.
    pub fn client(&self, address: &str) -> Result<AdminClient, AdminError> {
        AdminClient::new(address, self.tls.as_ref(), self.transport)
    }

    /// One member's view.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn ask(&self, member: &MemberEntry) -> Result<MemberView, Silence> {
        if let Some((_, own)) = self.own.as_ref().filter(|(id, _)| *id == member.id) {
            return Ok(own.view());
        }
        let view = self.view_at(&member.address).await?;
        if view.member.id != member.id {
            let why = format!(
                "member {} `{}` answers at {}; check the addresses",
                view.member.id, view.member.name, member.address
            );
            return Err(why.into());
        }
        Ok(view)
    }

    /// The view of the member that answers at an address.
    pub(super) async fn view_at(&self, address: &str) -> Result<MemberView, Silence> {
        let client = self.client(address);
        let client = client.map_err(|error| Silence::from(error.to_string()))?;
        let json = client.status().await.map_err(|error| match error {
            AdminError::Unreachable { reason, .. } => Silence::from(reason),
            AdminError::Unresolved { reason, .. } => Silence {
                why: reason,
                unresolved: true,
            },
            other => other.to_string().into(),
        })?;
        serde_json::from_slice(&json).map_err(|error| {
            let why =
                format!("its answer cannot be read ({error}); run the same version everywhere");
            why.into()
        })
    }
}

// Answers of a ring's members, asked at the same moment.

/// Why a member gave no usable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// As text.
    pub why: String,
    /// True if it was not called because its name could not be resolved.
    pub unresolved: bool,
}

impl<S: Into<String>> From<S> for Silence {
    fn from(why: S) -> Self {
        Self {
            why: why.into(),
            unresolved: false,
        }
    }
}

/// The answer of one member.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The member, as in the configuration, or as in the ring when it is not configured.
    pub entry: MemberEntry,
    /// True if it is in the client's configuration.
    pub configured: bool,
    /// Its view, or why there is none.
    pub answer: Result<MemberView, Silence>,
}

impl Asked {
    /// Returns whether it was not called because its name could not be resolved.
    pub(crate) fn unresolved(&self) -> bool {
        let silence = self.answer.as_ref().err();
        silence.is_some_and(|silence| silence.unresolved)
    }
}

/// The view of the member with the longest log; its roster and its voter sets are the newest.
pub(crate) fn latest(asked: &[Asked]) -> Option<&MemberView> {
    let views = asked.iter().filter_map(|asked| asked.answer.as_ref().ok());
    views
        .filter(|view| !view.members.is_empty())
        .max_by_key(|view| view.log_end)
}

#[cfg(test)]
impl Asked {
    /// For tests: a member of the region `north`; number 1 is a database member, all others are witnesses.
    pub(crate) fn sample(id: u64, name: &str, answer: Result<MemberView, String>) -> Self {
        let answer = answer.map_err(Silence::from);
        use raft_types::{MemberKind, Region};
        let entry = MemberEntry {
            id: MemberId(id),
            name: name.into(),
            region: Region("north".into()),
            kind: match id {
                1 => MemberKind::Database,
                _ => MemberKind::Witness,
            },
            votes: true,
            priority: 100,
            address: format!("10.0.0.{id}:7400"),
        };
        Self {
            entry,
            configured: true,
            answer,
        }
    }
}
