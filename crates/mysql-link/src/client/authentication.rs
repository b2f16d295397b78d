//! Answers the server's authentication challenges with mysql_common's procedures, and adds safety checks. Pure: no I/O.
//!
//! Supports only plugins that never show the password to a listener: `caching_sha2_password`, `sha256_password` and
//! `mysql_native_password`. The first two may send the password in clear text, and only over a secure transport.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use mysql_common::auth::plugins::{AuthProc, ChallengeResponsePlugin, Context, Response};
use mysql_common::packets::AuthPlugin;
use thiserror::Error;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::RSAPublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::client::{ConnectOptions, Endpoint, PublicKeySource};
use crate::error::{LinkError, ProtocolError};

/// The protections that the transport already has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransportSecurity {
    pub(crate) tls: bool,
    pub(crate) local_socket: bool,
}

/// The authentication plugin in use and its inputs.
pub(crate) struct Authentication {
    pub(crate) plugin: AuthPlugin<'static>,
    /// The server's address, for errors.
    endpoint: Endpoint,
    procedure: AuthProc,
    secrets: Secrets,
    may_request_key: bool,
}

struct Secrets {
    password: Vec<u8>,
    scramble: Vec<u8>,
    security: TransportSecurity,
    pinned_key: Option<Vec<u8>>,
}

impl Context for &Secrets {
    fn pass(&self) -> &[u8] {
        &self.password
    }

    fn is_ipc_transport(&self) -> bool {
        self.security.local_socket
    }

    fn is_tls_transport(&self) -> bool {
        self.security.tls
    }

    fn scramble(&self) -> &[u8] {
        &self.scramble
    }

    fn server_key_pem(&self) -> Option<&[u8]> {
        self.pinned_key.as_deref()
    }
}

impl PublicKeySource {
    /// Returns the pinned key if this source is a file, else `None`.
    ///
    /// # Errors
    /// When the file cannot be read, or contains no usable public key.
    pub fn read(&self) -> Result<Option<Vec<u8>>, PublicKeyError> {
        let Self::File(path) = self else {
            return Ok(None);
        };
        let failed = |error| PublicKeyError::Unreadable(path.clone(), error);
        let pem = std::fs::read(path).map_err(failed)?;
        check(&pem).map_err(|reason| PublicKeyError::Unusable(path.clone(), reason))?;
        Ok(Some(pem))
    }
}

/// Why a public key file cannot be used.
#[derive(Debug, Error)]
pub enum PublicKeyError {
    /// The file cannot be read.
    #[error("cannot read the public key file {}: {}", .0.display(), .1)]
    Unreadable(PathBuf, io::Error),
    /// The file contains no usable public key.
    #[error("the public key file {}: {}", .0.display(), .1)]
    Unusable(PathBuf, &'static str),
}

impl Authentication {
    /// Prepares for the plugin that the server named in its greeting. If that plugin is not supported, waits for the server's request to
    /// switch to another one.
    pub(crate) fn new(
        options: &ConnectOptions,
        security: TransportSecurity,
        offered: Option<AuthPlugin<'_>>,
        scramble: Vec<u8>,
    ) -> Result<Self, LinkError> {
        let plugin = offered
            .and_then(supported)
            .unwrap_or(AuthPlugin::CachingSha2Password);
        let pinned_key = options.public_key.read();
        let endpoint = options.endpoint.clone();
        let pinned_key = pinned_key
            .map_err(|error| LinkError::PublicKey(endpoint.clone(), error.to_string()))?;
        let secrets = Secrets {
            password: options.password.reveal().as_bytes().to_vec(),
            scramble,
            security,
            pinned_key,
        };
        let procedure = start(&plugin, &endpoint)?;
        let may_request_key =
            options.public_key == PublicKeySource::Request && endpoint.is_on_this_host();
        Ok(Self {
            plugin,
            endpoint,
            procedure,
            secrets,
            may_request_key,
        })
    }

    /// Returns the answer to the current challenge, which is sent with the handshake response.
    pub(crate) fn first_answer(&mut self) -> Result<Vec<u8>, LinkError> {
        let scramble = self.secrets.scramble.clone();
        Ok(self.run(&scramble)?.unwrap_or_default())
    }

    /// Changes to the plugin that the server requests. Returns the answer to the new challenge; empty if the plugin has none.
    pub(crate) fn switch(
        &mut self,
        plugin: AuthPlugin<'_>,
        scramble: &[u8],
    ) -> Result<Vec<u8>, LinkError> {
        let name = String::from_utf8_lossy(plugin.as_bytes()).into_owned();
        self.plugin = supported(plugin)
            .ok_or_else(|| LinkError::UnsupportedPlugin(self.endpoint.clone(), name))?;
        self.procedure = start(&self.plugin, &self.endpoint)?;
        self.secrets.scramble = scramble.to_vec();
        self.first_answer()
    }

    /// Returns the plugin's next message; `None` when there is nothing to send and the server continues.
    pub(crate) fn answer(&mut self, challenge: &[u8]) -> Result<Option<Vec<u8>>, LinkError> {
        if challenge.len() > 1 {
            check(challenge).map_err(|reason| {
                let reason = format!("the server sent a key that cannot be used: {reason}");
                LinkError::PublicKey(self.endpoint.clone(), reason)
            })?;
        }
        self.run(challenge)
    }

    fn run(&mut self, challenge: &[u8]) -> Result<Option<Vec<u8>>, LinkError> {
        let response = self.procedure.run(&self.secrets, challenge);
        let response = response.map_err(|error| {
            let error = ProtocolError::malformed("the server's challenge", error);
            LinkError::Protocol(self.endpoint.clone(), error)
        })?;
        match response {
            // A one-byte packet that expects another challenge requests the public key.
            Response::Next { packet: Some(packet) } if packet.len() == 1 && !self.may_request_key => {
                Err(LinkError::PublicKey(
                    self.endpoint.clone(),
                    "the password would go over a plain connection, no public key is pinned, and a server on another \
                     host is not asked for its key, since any host on the way could send its own: use TLS or the unix \
                     socket, or pin a copy of mysqld's public_key.pem (mysql.public_key_file)"
                        .to_owned(),
                ))
            }
            Response::Next { packet } | Response::Last { packet } => Ok(packet),
        }
    }
}

fn supported(plugin: AuthPlugin<'_>) -> Option<AuthPlugin<'static>> {
    match plugin {
        AuthPlugin::CachingSha2Password => Some(AuthPlugin::CachingSha2Password),
        AuthPlugin::Sha256Password => Some(AuthPlugin::Sha256Password),
        AuthPlugin::MysqlNativePassword => Some(AuthPlugin::MysqlNativePassword),
        _ => None,
    }
}

fn start(plugin: &AuthPlugin<'_>, endpoint: &Endpoint) -> Result<AuthProc, LinkError> {
    plugin
        .init()
        .map_err(|error| LinkError::UnsupportedPlugin(endpoint.clone(), error.to_string()))
}

// Checks an RSA public key before its use. The key may come from the network, and the code that uses it does not check its lengths.

/// The smallest and largest accepted modulus, in bytes. OAEP padding needs 42 bytes in addition to the password.
const MODULUS_BYTES: std::ops::RangeInclusive<usize> = 128..=2048;

/// Whether `pem` holds an RSA public key (PKCS#1 or PKCS#8) of a usable size.
pub(crate) fn check(pem: &[u8]) -> Result<(), &'static str> {
    use mysql_common::crypto::der::{PubKeyFileType, pem_to_der};

    let (der, kind) = pem_to_der(pem).map_err(|_| "it is not a PEM public key")?;
    let key = match kind {
        PubKeyFileType::Pkcs1 => Cow::Borrowed(&der[..]),
        PubKeyFileType::Pkcs8 => {
            let info = SubjectPublicKeyInfo::from_der(&der);
            let (_, info) = info.map_err(|_| "its PKCS#8 structure is damaged")?;
            info.subject_public_key.data
        }
    };
    let key = RSAPublicKey::from_der(&key).map_err(|_| "its RSA structure is damaged")?;
    let RSAPublicKey { modulus, exponent } = key.1;
    let modulus = without_leading_zeros(modulus);
    if !MODULUS_BYTES.contains(&modulus.len()) {
        return Err("its modulus is smaller than 1024 or larger than 16384 bits");
    }
    let odd = modulus.last().is_some_and(|byte| byte & 1 == 1);
    let exponent = without_leading_zeros(exponent);
    if odd && (1..=8).contains(&exponent.len()) {
        Ok(())
    } else {
        Err("its numbers are not those of an RSA key")
    }
}

fn without_leading_zeros(mut number: &[u8]) -> &[u8] {
    while let [0, rest @ ..] = number {
        number = rest;
    }
    number
}

#[cfg(test)]
mod tests {
    use mysql_common::auth::plugins::mysql_native_password::scramble_native;

    use super::*;

    const SCRAMBLE: &[u8; 20] = b"abcdefghijklmnopqrst";
    const PLAIN: TransportSecurity = TransportSecurity {
        tls: false,
        local_socket: false,
    };
    const TLS: TransportSecurity = TransportSecurity {
        tls: true,
        local_socket: false,
    };
    const SOCKET: TransportSecurity = TransportSecurity {
        tls: false,
        local_socket: true,
    };
    const FULL_AUTHENTICATION: &[u8] = &[4];
    const KEY: &[u8] = include_bytes!("../../tests/keys/public_key.pem");

    fn options(password: &str) -> ConnectOptions {
        ConnectOptions::new(Endpoint::tcp("localhost", 3306), "witness", password)
    }

    fn begun(options: &ConnectOptions, security: TransportSecurity) -> Authentication {
        let offered = Some(AuthPlugin::CachingSha2Password);
        let mut authentication =
            Authentication::new(options, security, offered, SCRAMBLE.to_vec()).unwrap();
        assert_eq!(authentication.first_answer().unwrap().len(), 32);
        authentication
    }

    #[test]
    fn secure_transports_get_the_password_in_clear() {
        for security in [TLS, SOCKET] {
            let mut authentication = begun(&options("secret"), security);
            let answer = authentication.answer(FULL_AUTHENTICATION).unwrap();
            assert_eq!(answer, Some(b"secret\0".to_vec()));
        }
    }

    #[test]
    fn a_plain_transport_never_sees_the_password() {
        let mut authentication = begun(&options("secret"), PLAIN);
        let answer = authentication.answer(FULL_AUTHENTICATION).unwrap();
        assert_eq!(answer, Some(vec![2]));
        let sealed = authentication.answer(KEY).unwrap().unwrap();
        assert_eq!(sealed.len(), 256);
    }

    #[test]
    fn only_a_server_on_this_host_is_asked_for_its_key() {
        for (host, is_asked) in [
            ("localhost", true),
            ("127.0.0.1", true),
            ("::1", true),
            ("10.0.0.7", false),
            ("db-1", false),
        ] {
            let options = ConnectOptions::new(Endpoint::tcp(host, 3306), "witness", "secret");
            let answer = begun(&options, PLAIN).answer(FULL_AUTHENTICATION);
            assert_eq!(answer.is_ok(), is_asked, "{host}: {answer:?}");
        }
    }

    #[test]
    fn a_damaged_key_is_refused() {
        let mut authentication = begun(&options("secret"), PLAIN);
        authentication.answer(FULL_AUTHENTICATION).unwrap();
        let refused =
            authentication.answer(b"-----BEGIN PUBLIC KEY-----\nMAAA\n-----END PUBLIC KEY-----\n");
        assert!(
            matches!(refused, Err(LinkError::PublicKey(..))),
            "{refused:?}"
        );
    }

    #[test]
    fn no_key_is_requested_when_that_is_disabled() {
        let options = ConnectOptions {
            public_key: PublicKeySource::Never,
            ..options("secret")
        };
        let refused = begun(&options, PLAIN).answer(FULL_AUTHENTICATION);
        assert!(
            matches!(refused, Err(LinkError::PublicKey(..))),
            "{refused:?}"
        );
    }

    #[test]
    fn a_server_that_asks_for_clear_text_is_refused() {
        let mut authentication = begun(&options("secret"), PLAIN);
        let refused = authentication.switch(AuthPlugin::MysqlClearPassword, b"");
        assert!(
            matches!(&refused, Err(LinkError::UnsupportedPlugin(_, plugin)) if plugin == "mysql_clear_password"),
            "{refused:?}"
        );
    }

    #[test]
    fn a_switch_answers_the_new_challenge() {
        let mut authentication = begun(&options("secret"), PLAIN);
        let answer = authentication
            .switch(AuthPlugin::MysqlNativePassword, SCRAMBLE)
            .unwrap();
        let expected = scramble_native(SCRAMBLE, b"secret").unwrap();
        assert_eq!(answer, expected);
    }

    #[test]
    fn an_empty_password_is_an_empty_answer() {
        let offered = Some(AuthPlugin::CachingSha2Password);
        let mut authentication =
            Authentication::new(&options(""), PLAIN, offered, SCRAMBLE.to_vec()).unwrap();
        assert!(authentication.first_answer().unwrap().is_empty());
    }
}

#[cfg(test)]
mod public_key_tests {
    use proptest::prelude::*;

    use super::*;

    /// A public key made for this test; 2048 bits, as mysqld makes them.
    const KEY: &str = include_str!("../../tests/keys/public_key.pem");

    fn pem_of(der: &[u8]) -> String {
        // Only the alphabet is base64's; the rest of this encoding does not matter to the test.
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for group in der.chunks(3) {
            let mut bits = [0; 3];
            bits[..group.len()].copy_from_slice(group);
            let word = u32::from(bits[0]) << 16 | u32::from(bits[1]) << 8 | u32::from(bits[2]);
            for i in 0..4 {
                let symbol = alphabet[(word >> (18 - 6 * i)) as usize & 63] as char;
                text.push(if i <= group.len() { symbol } else { '=' });
            }
        }
        format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")
    }

    fn der_of(pem: &str) -> Vec<u8> {
        mysql_common::crypto::der::pem_to_der(pem).unwrap().0
    }

    #[test]
    fn a_real_key_passes_and_can_be_used() {
        assert_eq!(check(KEY.as_bytes()), Ok(()));
        assert_eq!(check(pem_of(&der_of(KEY)).as_bytes()), Ok(()));
        assert_eq!(
            mysql_common::crypto::encrypt(b"secret\0", KEY.as_bytes())
                .unwrap()
                .len(),
            256
        );
    }

    #[test]
    fn invalid_keys_are_refused() {
        for pem in [
            "",
            "hello",
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        ] {
            assert!(check(pem.as_bytes()).is_err(), "{pem}");
        }
    }

    proptest! {
        /// A key that passes the check must not cause a panic where it is used.
        #[test]
        fn damaged_keys_never_panic(at in 0_usize..294, with in any::<u8>(), cut in 0_usize..294) {
            let mut der = der_of(KEY);
            let place = at % der.len();
            der[place] = with;
            der.truncate(der.len() - cut / 20);
            let pem = pem_of(&der);
            if check(pem.as_bytes()).is_ok() {
                let _ = mysql_common::crypto::encrypt(b"secret\0", pem.as_bytes());
            }
        }
    }
}
