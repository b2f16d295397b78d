//! The sections of the configuration, each a struct with its values, rules and settings, and the rules for combinations of
//! sections. Pure: no rule reads a file. A rule skips a key with a wrong value, because the reading of that value has already
//! reported the mistake.

pub(crate) mod mysql;
pub(crate) mod process;
pub(crate) mod ring;

use std::fmt;
use std::net::IpAddr;

use crate::config::key::{Entry, Given, Key, Section};
use crate::config::problem::Problems;

/// The name of the list of members in the file.
pub(crate) const MEMBERS: &str = "members";

macro_rules! sections {
    ($($field:ident: $section:ty,)*) => {
        /// The value of every key. It includes passwords, so it is never printed.
        pub(crate) struct Sections {
            $(pub(crate) $field: $section,)*
            pub(crate) members: Vec<ring::MemberKeys>,
        }

        /// All sections, in the order of the documentation and the example. The list of members is last.
        pub(crate) const SECTIONS: &[Section] = &[$(<$section>::SECTION,)* ring::MemberKeys::SECTION];

        impl Sections {
            /// Reports every missing and every wrong value.
            pub(crate) fn read(given: &Given<'_>, members: &[Given<'_>], problems: &mut Problems) -> Self {
                Self {
                    $($field: <$section>::read(given, problems),)*
                    members: members.iter().map(|given| ring::MemberKeys::read(given, problems)).collect(),
                }
            }

            /// Returns every setting; the settings of the members are last.
            pub(crate) fn entries(&self) -> Vec<Entry<'_>> {
                let members = self.members.iter().map(ring::MemberKeys::entries);
                [$(self.$field.entries(),)*].into_iter().chain(members).flatten().collect()
            }

            /// Returns the keys whose values differ in a newer configuration and that only a restart applies.
            pub(crate) fn restarts(&self, newer: &Self) -> Vec<&'static str> {
                let same_members = self.members.len() == newer.members.len()
                    && self.members.iter().zip(&newer.members).all(|(own, newer)| own.restarts(newer).is_empty());
                let keys = [$(self.$field.restarts(&newer.$field),)*];
                let mut keys: Vec<_> = keys.into_iter().flatten().collect();
                keys.extend((!same_members).then_some(MEMBERS));
                keys
            }
        }
    };
}

sections! {
    top: ring::Top,
    ring: ring::Ring,
    member: ring::OwnMember,
    log: process::Log,
    raft: ring::Raft,
    quorum: ring::Quorum,
    regions: ring::Regions,
    tls: process::Tls,
    mysql: mysql::Mysql,
    binlog_server: mysql::BinlogServer,
    archive: process::Archive,
    http: process::Http,
    hooks: process::Hooks,
    logging: process::Logging,
}

impl fmt::Debug for Sections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sections(…)")
    }
}

/// Returns all keys except the keys of the members' entries.
pub(crate) fn keys() -> impl Iterator<Item = &'static Key> + Clone {
    let single = SECTIONS.iter().filter(|section| section.name() != MEMBERS);
    single.flat_map(|section| section.keys)
}

/// Checks the rules among the keys, and reports every broken rule.
pub(crate) fn check(sections: &Sections, problems: &mut Problems) {
    let members = &sections.members;
    ring::check_unique(members, problems);
    sections.member.validate(members, problems);
    ring::check_votes(members, problems);
    sections.quorum.validate(members, problems);
    sections.regions.validate(members, problems);
    sections.raft.validate(problems);
    sections.tls.validate(problems);
    if with_mysql(sections) {
        let own = sections.member.id.usable();
        let has_others = members
            .iter()
            .any(|member| member.is_database() && *member.votes && member.id.usable() != own);
        let mysql = &sections.mysql;
        mysql.validate(&sections.top.data_dir, has_others, problems);
    }
    listeners(sections, problems);
    sections.log.validate(problems);
    let apply = &sections.mysql.apply;
    sections
        .binlog_server
        .validate(apply, &sections.tls, problems);
    sections.archive.validate(problems);
    for setting in [
        &sections.top.data_dir,
        &sections.logging.level,
        &sections.mysql.user,
    ] {
        if setting.usable().is_some_and(|text| text.trim().is_empty()) {
            setting.error(
                problems,
                format!("`{}` is empty", setting.path()),
                "give it a value, or remove the line for its default",
            );
        }
    }
}

/// Whether this process's member uses section `[mysql]`.
pub(crate) fn with_mysql(sections: &Sections) -> bool {
    let own = sections.member.own(&sections.members);
    own.is_some_and(|own| own.is_database())
}

/// Checks that a configuration with an address beyond loopback has a certificate or `tls.plaintext`. `witness tls init` skips this check,
/// because it runs before there is a certificate.
pub(crate) fn check_beyond_loopback(sections: &Sections, problems: &mut Problems) {
    let tls = &sections.tls;
    if !tls.certificate_file.is_empty() || !tls.plaintext.is_empty() {
        return;
    }
    let own = sections.member.own(&sections.members);
    let others = sections
        .members
        .iter()
        .filter(|member| own.is_none_or(|own| own.id.usable() != member.id.usable()));
    let called = own.into_iter().chain(others);
    let mut reached = [
        &sections.member.listen,
        &sections.http.listen,
        &sections.binlog_server.listen,
    ]
    .into_iter()
    .chain(called.map(|member| &member.address));
    if let Some(setting) = reached.find(|address| beyond_loopback(address)) {
        let (key, address) = (setting.path(), setting.as_str());
        setting.error(
            problems,
            format!("`{key}` {address} is beyond loopback, and `[tls]` has no certificate"),
            "make certificates with `witness tls init` and name them in `[tls]`, or set `tls.plaintext = true` to do without TLS",
        );
    }
}

/// True if an address, `HOST:PORT`, is not a loopback address: it is on another host, or reachable from other hosts. False for an empty
/// address.
fn beyond_loopback(address: &str) -> bool {
    let Some((host, _)) = address.rsplit_once(':') else {
        return false;
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let numeric = host.parse::<IpAddr>();
    numeric.map_or(!host.eq_ignore_ascii_case("localhost"), |address| {
        !address.to_canonical().is_loopback()
    })
}

fn listeners(sections: &Sections, problems: &mut Problems) {
    let (member, http) = (&sections.member.listen, &sections.http.listen);
    let binlog_server = &sections.binlog_server.listen;
    let own_address = || {
        let own = sections.member.own(&sections.members)?;
        own.address.usable()
    };
    let listeners = [
        (
            member,
            "the other members' calls are taken in",
            member.given().or_else(own_address),
        ),
        (http, "HTTP is served", http.given()),
        (binlog_server, "the binlog server is", binlog_server.given()),
    ];
    for (at, (setting, _, listen)) in listeners.iter().enumerate() {
        let Some(listen) = listen else { continue };
        let before = listeners.iter().take(at);
        let taken = before
            .filter_map(|(_, what, other)| Some((what, (*other)?)))
            .find(|(_, other)| meet(listen, other));
        if let Some((what, _)) = taken {
            setting.error(
                problems,
                format!("`{}` is {listen}, where {what}", setting.path()),
                "give it a port of its own",
            );
        }
    }
    if let Some(listen) = member.given().filter(|listen| listen.ends_with(":0")) {
        member.error(
            problems,
            format!("`member.listen` is {listen}, a port that the other members do not know"),
            "write the port at which the other members call this one",
        );
    }
}

/// True if one process cannot bind both addresses: the ports are equal, and the hosts are equal or one of them is the wildcard address.
/// Port 0 never conflicts, because the system chooses another port each time.
fn meet(one: &str, other: &str) -> bool {
    let (Some((host, port)), Some((other, other_port))) =
        (one.rsplit_once(':'), other.rsplit_once(':'))
    else {
        return false;
    };
    let is_every = |host: &str| matches!(host, "0.0.0.0" | "[::]" | "*" | "");
    let same_host = host == other || is_every(host) || is_every(other);
    port == other_port && port != "0" && same_host
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::key::{flag_of, variable_of};

    #[test]
    fn no_two_keys_have_one_variable_or_flag() {
        let mut seen = BTreeSet::new();
        for key in SECTIONS.iter().flat_map(|section| section.keys) {
            assert!(seen.insert(variable_of(key.path)), "{}", key.path);
            assert!(seen.insert(flag_of(key.path)), "{}", key.path);
        }
    }
}
