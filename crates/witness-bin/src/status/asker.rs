//! Asks the members of a ring what they say of themselves, all at once, each with a deadline.

use std::time::Duration;

use consensus::Timers;
use transport::{AdminClient, TlsError, TlsFiles, TlsMaterial, TransportConfig};

use super::ring_report::RingReport;
use super::view::MemberView;
use crate::config::{Config, MemberEntry};

/// How long a member may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks the members of one configuration.
pub struct Asker {
    ring: String,
    members: Vec<MemberEntry>,
    tls: Option<TlsMaterial>,
    transport: TransportConfig,
}

impl Asker {
    /// For the members of this configuration.
    ///
    /// # Errors
    /// When the files for TLS cannot be used.
    pub fn new(config: &Config) -> Result<Self, TlsError> {
        let tls = match &config.tls {
            None => None,
            Some(tls) => {
                let files = TlsFiles {
                    certificate: tls.certificate_file.clone(),
                    key: tls.key_file.clone(),
                    authority: tls.ca_file.clone(),
                    peer_name: tls.peer_name.clone(),
                };
                Some(TlsMaterial::load(&files)?)
            }
        };
        Ok(Self {
            ring: config.ring_name.clone(),
            members: config.members.clone(),
            tls,
            transport: TransportConfig {
                connect_deadline: PATIENCE,
                call_deadline: PATIENCE,
                ..TransportConfig::for_timers(&Timers::default())
            },
        })
    }

    /// The ring as all of them see it, asked at once.
    pub async fn report(&self) -> RingReport {
        let asked = self.members.iter().map(async |member| {
            let answer = self.ask(member).await;
            (member.clone(), answer)
        });
        let answers = futures::future::join_all(asked).await;
        RingReport::new(&self.ring, answers)
    }

    /// One member's view.
    ///
    /// # Errors
    /// In words, why there is none.
    pub async fn ask(&self, member: &MemberEntry) -> Result<MemberView, String> {
        let client = AdminClient::new(&member.address, self.tls.as_ref(), self.transport);
        let client = client.map_err(|error| error.to_string())?;
        let json = client.status().await.map_err(|error| error.to_string())?;
        let view: MemberView = serde_json::from_slice(&json).map_err(|error| {
            format!("its answer has no meaning ({error}); run the same version everywhere")
        })?;
        if view.member.id != member.id {
            return Err(format!(
                "member {} `{}` answers at {}; check the addresses",
                view.member.id, view.member.name, member.address
            ));
        }
        Ok(view)
    }
}
