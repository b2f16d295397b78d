//! Fuzzing targets: one for each parser of bytes from a socket or a file.
//!
//! A target asserts more than the absence of panics. Reading a written value must return the same value, two parsers must agree, and memory
//! must be in proportion to the input. `cargo test -p fuzz-targets` runs the inputs in `corpus/` and `found/`, and mutations of them.
//! `cargo lab fuzz` searches for new inputs.

mod archive;
mod binlog;
mod log;
mod mysql;
mod operators;
mod repair;
mod ring;

use peak_alloc::PeakAlloc;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Reads an input. Returns whether the input is valid for the parser.
type Read = fn(&[u8]) -> bool;

/// A parser with its assertions and its memory limit.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The target's name, and the name of its folders in `corpus/` and `found/`.
    pub name: &'static str,
    read: Read,
    memory: Bound,
}

/// Limit for the peak memory while an input is read, in bytes.
#[derive(Debug, Clone, Copy)]
struct Bound {
    fixed: usize,
    per_byte: usize,
}

/// Limit for texts and JSON documents. Errors quote the input, and a JSON value of one digit takes 32 bytes.
const DOCUMENT: Bound = Bound {
    fixed: 64 << 10,
    per_byte: 128,
};

impl Target {
    const fn new(name: &'static str, read: Read) -> Self {
        let memory = DOCUMENT;
        Self { name, read, memory }
    }

    /// Returns the target with another memory limit.
    const fn within(self, fixed: usize, per_byte: usize) -> Self {
        Self {
            memory: Bound { fixed, per_byte },
            ..self
        }
    }

    /// Reads an input; returns whether it was accepted.
    ///
    /// # Panics
    /// If an assertion of the target fails, or the memory exceeds its limit. The memory of the whole process is measured, so no other
    /// thread may allocate at the same time.
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

/// Returns the target with this name.
pub fn target(name: &str) -> Option<&'static Target> {
    targets().find(|target| target.name == name)
}

/// Reads an input and writes it. A second round must write the same bytes. Returns whether the input is valid.
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

/// Reads a JSON document. Returns the document as written again.
fn document<T: serde::Serialize + serde::de::DeserializeOwned>(json: &[u8]) -> Option<Vec<u8>> {
    let document: T = serde_json::from_slice(json).ok()?;
    Some(serde_json::to_vec(&document).expect("what was read is written"))
}
