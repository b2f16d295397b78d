//! `witness health`: queries this host's member over HTTP whether it is alive, ready, or the primary. For containers whose image has no
//! HTTP client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use ureq::Agent;
use ureq::tls::TlsConfig;

use crate::cli::config_args::ConfigArgs;
use crate::config::HttpSettings;
use crate::terminal::{Exit, Failure, Format, print_json, print_text};

/// The queries answered by a status code.
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

/// The deciding parts of the answer.
#[derive(Debug, Deserialize)]
struct Answer {
    ok: bool,
    reason: Option<String>,
}

/// Runs `witness health`.
///
/// # Errors
/// Exit 1 when it does not answer, or answers no; 2 when the configuration has no HTTP address.
pub(crate) fn run(args: &HealthArgs, format: Format) -> Result<(), Failure> {
    let (config, _) = args.config.load()?;
    let Some(http) = &config.http else {
        return Err(Failure::new(
            Exit::Usage,
            "the member does not serve HTTP",
            "set http.listen",
        ));
    };
    let question = &args.question;
    let answer = ask(http, question, args.timeout)
        .map_err(|error| Failure::error(format!("no answer from {}: {error}", http.listen)))?;
    if !answer.ok {
        let reason = answer.reason.unwrap_or_default();
        return Err(Failure::error(format!("{question}: no: {reason}")));
    }
    match format {
        Format::Table => print_text(&format!("{question}: yes\n")),
        Format::Json => print_json(&serde_json::json!({ "ok": true })),
    }
}

fn ask(http: &HttpSettings, question: &str, limit: Duration) -> Result<Answer, String> {
    let address = reachable(&http.listen)?;
    let scheme = match http.certificate {
        Some(_) => "https",
        None => "http",
    };
    // As an orchestrator's probes: the call stays on this host, sends no secret, and the certificate is for the address that others use.
    let tls = TlsConfig::builder()
        .disable_verification(true)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()));
    // Ignores a proxy in the environment.
    let config = Agent::config_builder()
        .tls_config(tls.build())
        .timeout_global(Some(limit))
        .http_status_as_error(false)
        .proxy(None);
    let agent: Agent = config.build().into();
    let call = agent.get(format!("{scheme}://{address}/{question}")).call();
    let mut response = call.map_err(|error| error.to_string())?;
    let text = response.body_mut().read_to_string();
    let text = text.map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|_| "that is no member".to_owned())
}

/// Address of a listener for calls from this host: a wildcard address cannot be called.
fn reachable(listen: &str) -> Result<SocketAddr, String> {
    let mut addresses = listen
        .to_socket_addrs()
        .map_err(|error| error.to_string())?;
    let mut address = addresses.next().ok_or("it names no address")?;
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
    fn an_address_that_stands_for_all_is_asked_at_loopback() {
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
