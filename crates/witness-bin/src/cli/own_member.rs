//! `witness bootstrap` and `witness health`, for the member of this host. `bootstrap` makes a running member create the ring. It is for
//! hosts on which a service manager starts the member, so that `witness run --bootstrap` cannot be used. `health` queries the member over
//! HTTP, for container images without an HTTP client.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use member::protocol::{CommandResult, OperatorCommand};
use serde::Deserialize;
use serde_json::json;
use ureq::Agent;
use ureq::tls::TlsConfig;

use crate::cli::config_args::ConfigArgs;
use crate::cli::session::{Consent, RingArgs, another_answer};
use crate::config::{FileCheck, HttpSettings, duration_of};
use crate::terminal::{Attempt, Exit, Failure, Format, print};

/// Arguments of `witness bootstrap`.
#[derive(Debug, clap::Args)]
pub(crate) struct BootstrapArgs {
    /// Give up waiting after this long, e.g. 30s; the command itself continues on the members
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration_of)]
    timeout: Duration,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs `witness bootstrap`.
///
/// # Errors
/// Exit 3 if the member does not answer, or the ring exists but gets no leader in time; 4 if a member is not new or not reachable; 5 if
/// the ring is not created in time.
pub(crate) fn bootstrap(args: &BootstrapArgs, format: Format) -> Attempt {
    let settings = args.config.member()?;
    let ring = settings.ring_name.as_str();
    args.consent.to(&format!(
        "Create the ring `{ring}` of {} members, with an empty log?",
        settings.members.len()
    ))?;
    let (endpoints, config) = (Vec::new(), args.config.clone());
    let configured = RingArgs { endpoints, config };
    configured.session(args.timeout, format, async |session| {
        let own = session.directory.find(&settings.own.id.to_string())?;
        let origin = String::new();
        let until = session.until();
        let result = session
            .at(own, OperatorCommand::Bootstrap { origin })
            .await?;
        let CommandResult::Bootstrapped(ring_id) = result else {
            return Err(another_answer(&result));
        };
        // The command waits for a leader, because the next command of a script needs a ring that commits.
        if session.leader(until).await.is_none() {
            return Err(Exit::NoQuorum.because(
                format!("ring `{ring}` exists, and no member leads yet"),
                "check with `witness status` what it waits for",
            ));
        }
        print(format, &json!({ "ring": ring, "ring_id": ring_id }), || {
            format!("ring `{ring}` exists: {ring_id}; `witness status` shows its members\n")
        })
    })
}

/// The health checks that the member answers over HTTP.
const QUESTIONS: [&str; 7] = [
    "liveness",
    "readiness",
    "leader",
    "primary",
    "replica",
    "read-only",
    "witness",
];

/// Arguments of `witness health`.
#[derive(Debug, clap::Args)]
pub(crate) struct HealthArgs {
    /// What to ask, as over HTTP
    #[arg(value_name = "QUESTION", default_value = "liveness", value_parser = QUESTIONS)]
    question: String,
    /// How long to wait for the answer
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    #[command(flatten)]
    config: ConfigArgs,
}

/// The parts of the member's answer that this command uses.
#[derive(Debug, Deserialize)]
struct Answer {
    ok: bool,
    reason: Option<String>,
}

/// Runs `witness health`.
///
/// # Errors
/// Exit 1 if the member does not answer, or its answer is no; 2 if the configuration has no HTTP address.
pub(crate) fn health(args: &HealthArgs, format: Format) -> Attempt {
    let (config, _) = args.config.load(FileCheck::Readable)?;
    let Some(http) = &config.http else {
        return Err(Exit::Usage.because("the member does not serve HTTP", "set http.listen"));
    };
    let question = &args.question;
    let answer = ask(http, question, args.timeout)?;
    if !answer.ok {
        let reason = answer.reason.unwrap_or_default();
        return Err(Failure::error(format!("{question}: no: {reason}")));
    }
    print(format, &json!({ "ok": true }), || {
        format!("{question}: yes\n")
    })
}

fn ask(http: &HttpSettings, question: &str, limit: Duration) -> Attempt<Answer> {
    let no_answer =
        |why: &dyn Display| Failure::error(format!("no answer from {}: {why}", http.listen));
    let address = reachable(&http.listen).map_err(|error| no_answer(&error))?;
    let scheme = match http.certificate {
        Some(_) => "https",
        None => "http",
    };
    // The certificate is not verified, as in an orchestrator's probes: it is for the address that other hosts use. The call stays on this
    // host, and sends no secret.
    let tls = TlsConfig::builder()
        .disable_verification(true)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
    // A proxy in the environment is ignored.
    let config = Agent::config_builder()
        .tls_config(tls.build())
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        .proxy(None);
    let agent: Agent = config.build().into();
    let called = agent.get(format!("{scheme}://{address}/{question}")).call();
    let text = called.and_then(|mut response| response.body_mut().read_to_string());
    let text = text.map_err(|error| no_answer(&error))?;
    serde_json::from_str(&text).map_err(|_| no_answer(&"that is no member"))
}

/// Returns the address at which this host can call a listener. A wildcard address is replaced with the loopback address.
fn reachable(listen: &str) -> io::Result<SocketAddr> {
    let first = listen.to_socket_addrs()?.next();
    let mut address = first.ok_or_else(|| io::Error::other("it names no address"))?;
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_addresses_are_called_at_loopback() {
        for (listen, reached) in [
            ("0.0.0.0:7480", "127.0.0.1:7480"),
            ("[::]:7480", "[::1]:7480"),
            ("10.0.0.1:7480", "10.0.0.1:7480"),
        ] {
            assert_eq!(reachable(listen).unwrap().to_string(), reached);
        }
        reachable("nowhere").unwrap_err();
    }
}
