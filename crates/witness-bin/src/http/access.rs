//! The certificate for HTTPS, and the tokens for reads and orders. A reload can replace them while HTTP is served.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Json, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use member::settings::PasswordSource;
use member::{MemberError, UnusableFile};
use serde_json::json;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use transport::server_tls;

use crate::config::HttpSettings;

/// Certificate and tokens, read from their files.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The acceptor for HTTPS; `None` for plain HTTP.
    pub(super) tls: Option<TlsAcceptor>,
    /// The token for orders and reads.
    pub(super) operators: Option<String>,
    /// The token for reads only.
    pub(super) readers: Option<String>,
}

impl Credentials {
    /// Reads the certificate and the tokens from their files.
    ///
    /// # Errors
    /// When a file cannot be used.
    pub fn load(settings: &HttpSettings) -> Result<Self, MemberError> {
        let certificate = settings.certificate.as_ref();
        let tls = certificate.map(|(certificate, key)| server_tls(certificate, key));
        Ok(Self {
            tls: tls.transpose()?.map(|mut tls| {
                tls.alpn_protocols = vec![b"http/1.1".to_vec()];
                TlsAcceptor::from(Arc::new(tls))
            }),
            operators: token("http.token_file", settings.token.as_ref())?,
            readers: token("http.read_token_file", settings.read_token.as_ref())?,
        })
    }
}

fn token(key: &'static str, from: Option<&PasswordSource>) -> Result<Option<String>, MemberError> {
    let line = from.map(PasswordSource::read).transpose();
    let line = line.map_err(|source| MemberError::PasswordFile { key, source })?;
    Ok(line.as_deref().and_then(token_in))
}

/// Returns the configured files of tokens that cannot be used, with the reasons.
pub(crate) fn unusable_tokens(settings: &HttpSettings) -> Vec<UnusableFile> {
    let tokens = [
        ("http.token_file", &settings.token),
        ("http.read_token_file", &settings.read_token),
    ];
    let unusable = tokens.into_iter().filter_map(|(key, source)| {
        let why = source.as_ref()?.read().err()?.to_string();
        Some(UnusableFile { key, why })
    });
    unusable.collect()
}

/// Returns the token in the first line of a file; `None` if the line is empty.
pub(super) fn token_in(line: &str) -> Option<String> {
    let token = line.trim();
    (!token.is_empty()).then(|| token.to_owned())
}

/// The credentials that are in use. Clones share them.
#[derive(Clone, Default)]
pub struct Access(Arc<watch::Sender<Credentials>>);

impl Access {
    /// Starts with these credentials. The default has neither a certificate nor a token.
    pub fn new(credentials: Credentials) -> Self {
        Self(Arc::new(watch::Sender::new(credentials)))
    }

    /// Replaces the credentials. New connections use the new certificate, and new requests the new tokens. Open connections continue.
    pub fn renew(&self, credentials: Credentials) {
        self.0.send_replace(credentials);
    }

    /// Returns the TLS acceptor for the next connection; `None` for plain HTTP.
    pub(super) fn tls(&self) -> Option<TlsAcceptor> {
        self.0.borrow().tls.clone()
    }

    /// Checks whether a request may give an order. Basic authentication is not enough: pages of other sites can make a browser send
    /// requests, and the browser adds the password.
    pub(super) fn may_order(&self, headers: &HeaderMap) -> Result<(), Denied> {
        match &self.0.borrow().operators {
            None => Err(Denied::new(
                StatusCode::FORBIDDEN,
                "orders over HTTP are off; name a file with a token in `http.token_file`",
            )),
            Some(token) if bearer(headers).is_some_and(|given| same(given, token)) => Ok(()),
            Some(_) => Err(Denied {
                ask: Some("Bearer"),
                ..Denied::new(
                    StatusCode::UNAUTHORIZED,
                    "the token is missing or wrong; send `Authorization: Bearer TOKEN`",
                )
            }),
        }
    }

    /// Checks whether a request may read protected data.
    fn may_read(&self, headers: &HeaderMap) -> Result<(), Denied> {
        let credentials = self.0.borrow();
        let Some(readers) = &credentials.readers else {
            return Ok(());
        };
        let basic = basic(headers);
        let given = bearer(headers).or(basic.as_deref());
        let mut tokens = credentials.operators.iter().chain([readers]);
        if given.is_some_and(|given| tokens.any(|token| same(given, token))) {
            return Ok(());
        }
        Err(Denied {
            ask: Some("Basic realm=\"witness\", charset=\"UTF-8\""),
            ..Denied::new(
                StatusCode::UNAUTHORIZED,
                "the token for reading is missing or wrong; send `Authorization: Bearer TOKEN`, or log in with it as the password",
            )
        })
    }
}

/// Rejects requests that may not read protected data.
pub(super) async fn readers_only(
    State(access): State<Access>,
    request: Request,
    next: Next,
) -> Response {
    match access.may_read(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(denied) => denied.into_response(),
    }
}

/// A request that is rejected before the member acts on it.
#[derive(Debug)]
pub(super) struct Denied {
    pub(super) code: StatusCode,
    why: String,
    /// The authentication scheme to offer to the client.
    ask: Option<&'static str>,
}

impl Denied {
    pub(super) fn new(code: StatusCode, why: impl Into<String>) -> Self {
        Self {
            code,
            why: why.into(),
            ask: None,
        }
    }
}

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        let detail = json!({ "ok": false, "reason": self.why });
        let mut response = (self.code, Json(detail)).into_response();
        let ask = self.ask.map(header::HeaderValue::from_static);
        let headers = response.headers_mut();
        headers.extend(ask.map(|ask| (header::WWW_AUTHENTICATE, ask)));
        response
    }
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    authorization(headers, "Bearer")
}

/// Returns the password of basic authentication. The user name is ignored.
fn basic(headers: &HeaderMap) -> Option<Vec<u8>> {
    let decoded = STANDARD.decode(authorization(headers, "Basic")?).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    Some(decoded[colon + 1..].to_vec())
}

fn authorization<'a>(headers: &'a HeaderMap, scheme: &str) -> Option<&'a [u8]> {
    let value = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (named, rest) = value.split_at_checked(scheme.len())?;
    let named = named.eq_ignore_ascii_case(scheme.as_bytes());
    rest.strip_prefix(b" ").filter(|_| named)
}

/// Returns whether two tokens are equal. The time does not depend on the position of the first difference.
fn same(given: &[u8], expected: &str) -> bool {
    let pairs = given.iter().zip(expected.as_bytes());
    let different = pairs.fold(0, |so_far, (a, b)| so_far | (a ^ b));
    given.len() == expected.len() && different == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(operators: Option<&str>, readers: Option<&str>) -> Access {
        Access::new(Credentials {
            tls: None,
            operators: operators.map(str::to_owned),
            readers: readers.map(str::to_owned),
        })
    }

    fn headers(given: Option<&str>) -> HeaderMap {
        let given = given.map(|given| (header::AUTHORIZATION, given.parse().unwrap()));
        HeaderMap::from_iter(given)
    }

    fn login(name: &str, password: &str) -> String {
        format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
    }

    fn code(answer: Result<(), Denied>) -> u16 {
        answer.map_or_else(|denied| denied.code.as_u16(), |()| 200)
    }

    #[test]
    fn only_the_token_orders() {
        let by_login = login("ana", "secret");
        let table = [
            (None, None, 403),
            (None, Some("Bearer secret"), 403),
            (Some("secret"), None, 401),
            (Some("secret"), Some("secret"), 401),
            (Some("secret"), Some("Bearer secre"), 401),
            (Some("secret"), Some("Bearer secret2"), 401),
            (Some("secret"), Some("Bearer "), 401),
            (Some("secret"), Some("Bearer reads"), 401),
            (Some("secret"), Some(by_login.as_str()), 401),
            (Some("secret"), Some("Bearer secret"), 200),
            (Some("secret"), Some("bearer secret"), 200),
        ];
        for (token, given, expected) in table {
            let answer = access(token, Some("reads")).may_order(&headers(given));
            assert_eq!(code(answer), expected, "{token:?} {given:?}");
        }
    }

    #[test]
    fn who_may_order_may_read() {
        let (reader, operator) = (login("", "reads"), login("ana", "secret"));
        let with_colon = login("ana", "re:ads");
        let table = [
            (None, None, 200),
            (Some("reads"), None, 401),
            (Some("reads"), Some("Bearer other"), 401),
            (Some("reads"), Some("Basic reads"), 401),
            (Some("reads"), Some(with_colon.as_str()), 401),
            (Some("reads"), Some("Bearer reads"), 200),
            (Some("reads"), Some("Bearer secret"), 200),
            (Some("reads"), Some(reader.as_str()), 200),
            (Some("reads"), Some(operator.as_str()), 200),
            (Some("re:ads"), Some(with_colon.as_str()), 200),
        ];
        for (token, given, expected) in table {
            let answer = access(Some("secret"), token).may_read(&headers(given));
            assert_eq!(code(answer), expected, "{token:?} {given:?}");
        }
    }

    #[test]
    fn other_tokens_count_from_the_next_request_on() {
        let used = access(Some("old"), None);
        let server = used.clone();
        let with = |token: &str| code(server.may_order(&headers(Some(token))));
        assert_eq!((with("Bearer old"), with("Bearer new")), (200, 401));
        used.renew(Credentials {
            operators: Some("new".to_owned()),
            ..Credentials::default()
        });
        assert_eq!((with("Bearer old"), with("Bearer new")), (401, 200));
    }

    #[test]
    fn a_file_without_a_token_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let read = || token("http.token_file", Some(&PasswordSource::File(file.clone())));
        for empty in ["", "\n", "  \nsecret\n"] {
            std::fs::write(&file, empty).unwrap();
            let error = read().unwrap_err().to_string();
            assert!(error.contains("`http.token_file`"), "{error}");
            assert!(error.contains("first line is empty"), "{error}");
        }
        std::fs::write(&file, "secret\nwhatever\n").unwrap();
        assert_eq!(read().unwrap().as_deref(), Some("secret"));
    }
}
