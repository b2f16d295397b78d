//! Targets for fuzzing: one for everything that reads what came from a socket or a file.
//!
//! Beside "it does not panic", a target asserts what its parser promises: what was read and written is read the same again, two
//! parsers agree, and memory is in proportion to the input. `cargo test -p fuzz-targets` runs the inputs in `corpus/` and `found/`
//! and mutations of them through the targets, `cargo lab fuzz` searches for others.

mod archive;
mod binlog;
mod log;
mod mend;
mod mysql;
mod operators;
mod ring;

use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// What reads an input; whether it is accepted as what it claims to be.
type Read = fn(&[u8]) -> bool;

/// One target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// As its folders in `corpus/` and `found/` are called.
    pub name: &'static str,
    /// What the input is, and where the product gets it from.
    pub what: &'static str,
    read: Read,
    memory: Bound,
}

/// How much memory reading an input may take at its peak, in bytes.
#[derive(Debug, Clone, Copy)]
struct Bound {
    fixed: usize,
    per_byte: usize,
}

/// What texts and documents take: errors quote them, and JSON of one digit is a value of 32 bytes.
const DOCUMENT: Bound = Bound {
    fixed: 64 << 10,
    per_byte: 128,
};

impl Target {
    const fn new(name: &'static str, what: &'static str, read: Read) -> Self {
        Self {
            name,
            what,
            read,
            memory: DOCUMENT,
        }
    }

    /// The same with another bound.
    const fn within(self, fixed: usize, per_byte: usize) -> Self {
        Self {
            memory: Bound { fixed, per_byte },
            ..self
        }
    }

    /// Reads an input; whether it was accepted.
    ///
    /// # Panics
    /// When a property of the target does not hold, or more memory was taken than its bound. That is measured of the whole process:
    /// no other thread may allocate meanwhile.
    pub fn run(&self, input: &[u8]) -> bool {
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let accepted = (self.read)(input);
        let peak = MEMORY.peak_usage().saturating_sub(before);
        let most = self.memory.fixed + self.memory.per_byte * input.len();
        assert!(
            peak <= most,
            "{}: {} bytes of input took {peak} bytes of memory, more than {most}",
            self.name,
            input.len()
        );
        accepted
    }
}

/// All targets.
pub fn targets() -> impl Iterator<Item = &'static Target> {
    [
        binlog::TARGETS,
        log::TARGETS,
        ring::TARGETS,
        archive::TARGETS,
        mysql::TARGETS,
        operators::TARGETS,
    ]
    .into_iter()
    .flatten()
}

/// The target of a name.
pub fn target(name: &str) -> Option<&'static Target> {
    targets().find(|target| target.name == name)
}

/// Reads an input and writes it, and has what was written read: it has to be written the same. Whether it was accepted.
fn is_written_the_same(input: &[u8], read: impl Fn(&[u8]) -> Option<Vec<u8>>) -> bool {
    let Some(written) = read(input) else {
        return false;
    };
    let again = read(&written).expect("what was written is read");
    assert!(
        again == written,
        "written as\n{}\nand then as\n{}",
        written.escape_ascii(),
        again.escape_ascii()
    );
    true
}

/// The same for a document in JSON.
fn document<T: serde::Serialize + serde::de::DeserializeOwned>(json: &[u8]) -> Option<Vec<u8>> {
    let document: T = serde_json::from_slice(json).ok()?;
    Some(serde_json::to_vec(&document).expect("what was read is written"))
}
