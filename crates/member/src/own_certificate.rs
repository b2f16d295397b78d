//! Whether the other members accept this member's certificate, and for how long. A reload refuses a certificate that they would reject. At
//! a start that is only logged as an error, since a member without connections still serves its host.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use transport::{TlsError, TlsMaterial, ValidFor};

use crate::own_host::host;
use crate::settings::Settings;

/// Expiry is reported from this time before it, as early as the alert.
const TOLD_BEFORE: Duration = DAY.saturating_mul(14);
const DAY: Duration = Duration::from_secs(86_400);

impl Settings {
    /// Reads the files for TLS between members, and checks them as a reload does.
    ///
    /// # Errors
    /// Which one cannot be used, or why no other member would accept it.
    pub fn check_certificate(&self) -> Result<(), TlsError> {
        let Some(tls) = &self.tls else { return Ok(()) };
        self.check_shown(&tls.load()?).map(drop)
    }

    /// Checks a loaded certificate.
    pub(crate) fn check_shown(&self, tls: &TlsMaterial) -> Result<ValidFor, TlsError> {
        tls.check(host(&self.own.address), SystemTime::now())
    }
}

/// Logs a certificate that other members reject or that expires soon: immediately, after its renewal, and daily. Never returns.
pub(crate) async fn watch(tls: TlsMaterial, settings: Arc<Settings>) {
    loop {
        let renewed = tls.renewed();
        let checked = settings.check_shown(&tls);
        match &checked {
            Err(error) => tracing::error!("{error}"),
            Ok(valid) => {
                if let Some(words) = ends_soon(valid) {
                    tracing::warn!("{words}");
                }
            }
        }
        let left = checked.map_or(DAY, |valid| valid.left);
        // Its expiry is reported when it occurs.
        let next = DAY.min(left + Duration::from_secs(1));
        let _ = tokio::time::timeout(next, renewed).await;
    }
}

fn ends_soon(valid: &ValidFor) -> Option<String> {
    let file = valid.certificate.display();
    let left = match valid.left.as_secs() / DAY.as_secs() {
        _ if valid.left >= TOLD_BEFORE => return None,
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    };
    Some(format!(
        "the TLS certificate `{file}` expires in {left}, and the other members do not talk to this one then; put a new one there, and have \
         the member take it with `witness reload`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_certificate_is_told_two_weeks_before() {
        let told = |hours| {
            ends_soon(&ValidFor {
                certificate: "db-1.crt".into(),
                left: Duration::from_secs(3_600) * hours,
            })
        };
        assert_eq!(told(14 * 24), None);
        for (hours, left) in [
            (14 * 24 - 1, "in 13 days,"),
            (30, "in 1 day,"),
            (1, "in less than a day,"),
        ] {
            let words = told(hours).unwrap();
            assert!(words.contains("`db-1.crt` expires"), "{words}");
            assert!(words.contains(left), "{words}");
        }
    }
}
