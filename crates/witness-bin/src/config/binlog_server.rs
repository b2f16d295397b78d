//! `[binlog_server]`: its settings, and the rules between its keys.

use std::path::PathBuf;

use member::settings::{BinlogServerSettings, PasswordSource};

use super::problem::Problems;
use super::values::Values;

/// The inner `None` is a member without a binlog server.
pub(super) fn build(values: &Values) -> Option<Option<BinlogServerSettings>> {
    let listen = values.text("binlog_server.listen")?;
    if listen.is_empty() {
        return Some(None);
    }
    let pair = |certificate: &str, key: &str| -> Option<Option<(PathBuf, PathBuf)>> {
        let (certificate, key) = (values.text(certificate)?, values.text(key)?);
        Some((!certificate.is_empty()).then(|| (certificate.into(), key.into())))
    };
    let own = pair(CERTIFICATE, KEY)?;
    let of_the_member = pair("tls.certificate_file", "tls.key_file")?;
    let file = values.text("binlog_server.password_file")?;
    Some(Some(BinlogServerSettings {
        listen,
        user: values.text("binlog_server.user")?,
        password: if file.is_empty() {
            PasswordSource::Given(values.text("binlog_server.password")?)
        } else {
            PasswordSource::File(file.into())
        },
        certificate: own.or(of_the_member),
        require_tls: values.bool("binlog_server.require_tls")?,
        max_connections: usize::try_from(values.number("binlog_server.max_connections")?).ok()?,
        queue_bytes: usize::try_from(values.number("binlog_server.queue_bytes")?).ok()?,
    }))
}

const CERTIFICATE: &str = "binlog_server.tls_certificate_file";
const KEY: &str = "binlog_server.tls_key_file";

/// Records every broken rule; none holds for a member without a binlog server.
pub(super) fn check(values: &Values, taken: &[(&'static str, String)], problems: &mut Problems) {
    let given = |key: &str| values.text(key).is_some_and(|text| !text.is_empty());
    let missing = |key: &str| values.text(key).is_some_and(|text| text.is_empty());
    let Some(listen) = values
        .text("binlog_server.listen")
        .filter(|listen| !listen.is_empty())
    else {
        if values
            .text("mysql.apply")
            .is_some_and(|apply| apply == "native")
        {
            problems.error(
                values.report_at("mysql.apply"),
                "binlog_server.listen",
                "`mysql.apply` is \"native\", but the member has no binlog server that mysqld could read from",
                "set `binlog_server.listen` with an account, or mysql.apply = \"rows\"",
            );
        }
        return;
    };
    let at = values.report_at("binlog_server.listen");
    if missing("binlog_server.user") {
        problems.error(
            at,
            "binlog_server.user",
            "`binlog_server.user` is empty, but the binlog server is to listen",
            "name the account that replicas log in with",
        );
    }
    let (password, file) = ("binlog_server.password", "binlog_server.password_file");
    if missing(password) && missing(file) {
        problems.error(
            at,
            password,
            "the binlog server is to listen, but has neither `binlog_server.password` nor `binlog_server.password_file`",
            "give it one: the log has every row that was written",
        );
    }
    if given(password) && given(file) {
        problems.error(
            values.report_at(file),
            file,
            "`binlog_server.password` and `binlog_server.password_file` are both given",
            "keep one of them",
        );
    }
    for (one, other) in [(CERTIFICATE, KEY), (KEY, CERTIFICATE)] {
        if given(one) && missing(other) {
            problems.error(
                values.report_at(one),
                other,
                format!("`{one}` is given, but `{other}` is not"),
                "a certificate needs its key and a key its certificate",
            );
        }
    }
    let requires = values.bool("binlog_server.require_tls") == Some(true);
    if requires && missing(CERTIFICATE) && missing("tls.certificate_file") {
        problems.error(
            values.report_at("binlog_server.require_tls"),
            CERTIFICATE,
            "`binlog_server.require_tls` is set, but there is no certificate",
            "name one in `binlog_server.tls_certificate_file`, or the member's in `tls.certificate_file`",
        );
    }
    let same = taken.iter().find(|(_, address)| *address == listen);
    if let Some((what, _)) = same.filter(|_| !listen.ends_with(":0")) {
        problems.error(
            at,
            "binlog_server.listen",
            format!("`binlog_server.listen` is {listen}, where {what}"),
            "give it a port of its own",
        );
    }
}
