//! Runs libFuzzer on one target. `cargo lab fuzz` sets the target's name in the variable `WITNESS_FUZZ_TARGET`.

#![no_main]

use std::sync::LazyLock;

use fuzz_targets::Target;
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&Target> = LazyLock::new(|| {
    let name = std::env::var("WITNESS_FUZZ_TARGET").unwrap_or_default();
    let target = fuzz_targets::target(&name);
    target.unwrap_or_else(|| panic!("WITNESS_FUZZ_TARGET is `{name}`, which is no target"))
});

fuzz_target!(|data: &[u8]| {
    TARGET.run(data);
});
