//! Authorizes calls by the caller's certificate, and decides which refused calls are logged: a member with a wrong certificate calls many
//! times a second.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tonic::{Request, Status};

use crate::callers::{Holder, Right};
use crate::config::TlsMaterial;
use crate::server::incoming::CalledOver;

/// Authorizes calls: with TLS by certificate, without TLS always.
#[derive(Clone)]
pub(super) struct Callers {
    tls: Option<TlsMaterial>,
    refused: Arc<Refused>,
}

impl Callers {
    pub(super) fn new(tls: Option<&TlsMaterial>) -> Self {
        Self {
            tls: tls.cloned(),
            refused: Arc::default(),
        }
    }

    /// The holder of the caller's certificate; `None` without TLS.
    fn holder<T>(&self, request: &Request<T>) -> Option<Holder> {
        let first = called_over(request).and_then(|over| over.certificates.first());
        let certificate = first.map_or(&[][..], |certificate| certificate.as_ref());
        Some(self.tls.as_ref()?.holder(certificate))
    }

    pub(super) fn certificate_name<T>(&self, request: &Request<T>) -> Option<String> {
        self.holder(request).map(|holder| holder.name().to_owned())
    }

    pub(super) fn allow<T>(&self, request: &Request<T>, right: Right) -> Result<(), Status> {
        let Some(holder) = self.holder(request) else {
            return Ok(());
        };
        let over = called_over(request);
        holder.may(right).map_err(|refusal| {
            let caller = over.map(|over| over.address);
            let words = refusal.to_string();
            let host = caller.map(|caller| caller.ip());
            if self.refused.is_news(host, &words, Instant::now()) {
                tracing::warn!(target: "audit", ?caller, refusal = %words, "a call is refused");
            }
            Status::permission_denied(words)
        })
    }
}

/// Properties of the connection of a call.
pub(super) fn called_over<T>(request: &Request<T>) -> Option<&CalledOver> {
    request.extensions().get()
}

/// Minimum interval between log lines for equal refusals of one caller.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Recently logged refusals, with their times.
#[derive(Debug, Default)]
struct Refused(Mutex<BTreeMap<(Option<IpAddr>, String), Instant>>);

impl Refused {
    /// Whether to log this refusal: not again within [`TOLD_EVERY`].
    fn is_news(&self, host: Option<IpAddr>, words: &str, now: Instant) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, then| now.saturating_duration_since(*then) < TOLD_EVERY);
        let refusal = (host, words.to_owned());
        let is_news = !told.contains_key(&refusal);
        if is_news {
            told.insert(refusal, now);
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_caller_that_is_refused_again_and_again_is_told_of_now_and_then() {
        let begin = Instant::now();
        let refused = Refused::default();
        let host = |last| Some(IpAddr::from(Ipv4Addr::new(10, 0, 0, last)));
        let is_news = |milliseconds, host, words| {
            refused.is_news(host, words, begin + Duration::from_millis(milliseconds))
        };
        assert!(is_news(0, host(1), "a reader's"));
        assert!(!is_news(50, host(1), "a reader's"));
        assert!(is_news(50, host(2), "a reader's"), "another caller");
        assert!(is_news(100, host(1), "an operator's"), "other words");
        assert!(!is_news(9_999, host(1), "a reader's"));
        assert!(is_news(10_000, host(1), "a reader's"));
        assert!(!is_news(19_999, host(1), "a reader's"));
    }
}
