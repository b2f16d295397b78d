//! What operators and their programs write: configuration, orders, and the documents that members keep.

use member::protocol::{CommandEvent, Order};
use member::status::MemberView;
use mysqld_controller::fuzzing as controller;
use witness_bin::fuzzing as program;

use crate::{Target, document, is_written_the_same};

pub(crate) const TARGETS: &[Target] = &[
    Target::new("configuration", "the configuration file", |bytes| {
        std::str::from_utf8(bytes).is_ok_and(program::configuration)
    })
    .within(256 << 10, 4096),
    Target::new(
        "configuration-value",
        "a duration, size or address in a configuration or on the command line",
        |bytes| std::str::from_utf8(bytes).is_ok_and(program::value),
    ),
    Target::new(
        "http-order",
        "the body of an order over HTTP",
        program::http_order,
    ),
    Target::new(
        "command",
        "a command of an operator, what is told of it, and what a member says of itself",
        command,
    ),
    Target::new(
        "identity",
        "the file that says whose data directory it is",
        |bytes| is_written_the_same(bytes, member::fuzzing::identity),
    ),
    Target::new(
        "mysqld-note",
        "what a member notes of the mysqld beside it: its standing, a copy, a start, its events, a tail that was cut off",
        |bytes| is_written_the_same(bytes, controller::note),
    ),
    Target::new(
        "conversion-journal",
        "what was done of a conversion to a ring or back",
        |bytes| is_written_the_same(bytes, program::journal),
    ),
];

/// The first byte says which document it is.
fn command(bytes: &[u8]) -> bool {
    let Some((which, json)) = bytes.split_first() else {
        return false;
    };
    is_written_the_same(
        json,
        match which % 3 {
            0 => document::<Order>,
            1 => document::<CommandEvent>,
            _ => document::<MemberView>,
        },
    )
}
