//! Reload of a running member's configuration, without a restart. The program reads the configuration ([`Reload`]). The member first reads
//! and checks all files ([`Renewed::read`]); taking them cannot fail.

use crate::credentials::Credentials;
use crate::error::MemberError;
use crate::protocol::{Refusal, Reloaded};
use crate::settings::{HookSettings, Settings};

/// The program's part of a reload.
pub trait Reload: Send + Sync + 'static {
    /// Reloads the configuration, as far as possible while the member runs; a dry run changes nothing.
    ///
    /// # Errors
    /// All faults of the configuration; nothing was changed then.
    fn reload(&self, dry_run: bool) -> Result<Reloaded, Refusal>;
}

/// Certificates, passwords and hooks of a configuration, for a member to take.
pub struct Renewed {
    pub(crate) credentials: Credentials,
    pub(crate) hooks: HookSettings,
}

impl Renewed {
    /// Reads and checks every file; the member's own certificate as the other members will.
    ///
    /// # Errors
    /// Which one cannot be used, and why.
    pub fn read(settings: &Settings) -> Result<Self, MemberError> {
        let credentials = Credentials::read(settings)?;
        if let Some(tls) = &credentials.tls {
            settings.check_shown(tls)?;
        }
        Ok(Self {
            credentials,
            hooks: settings.hooks.clone(),
        })
    }
}
