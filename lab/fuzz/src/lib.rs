//! Fuzzing targets: one for each parser of bytes from a socket or a file.
//!
//! A target asserts more than the absence of panics: written values are read the same, two parsers agree, and memory is in proportion to
//! the input. `cargo test -p fuzz-targets` runs the inputs in `corpus/` and `found/` and mutations of them through the targets. `cargo lab
//! fuzz` searches for others.

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

/// Reads an input; returns whether it is accepted as what it claims to be.
type Read = fn(&[u8]) -> bool;

/// One target.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name of its folders in `corpus/` and `found/`.
    pub name: &'static str,
    read: Read,
    memory: Bound,
}

/// Peak memory for reading an input, in bytes.
#[derive(Debug, Clone, Copy)]
struct Bound {
    fixed: usize,
    per_byte: usize,
}

/// Memory for texts and documents: errors quote them, and a JSON value of one digit takes 32 bytes.
const DOCUMENT: Bound = Bound {
    fixed: 64 << 10,
    per_byte: 128,
};

impl Target {
    const fn new(name: &'static str, read: Read) -> Self {
        let memory = DOCUMENT;
        Self { name, read, memory }
    }

    /// The same with another bound.
    const fn within(self, fixed: usize, per_byte: usize) -> Self {
        Self {
            memory: Bound { fixed, per_byte },
            ..self
        }
    }

    /// Reads an input; returns whether it was accepted.
    ///
    /// # Panics
    /// When a property of the target does not hold, or the memory exceeds its bound. The whole process is measured: no other thread may
    /// allocate at the same time.
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

/// Reads an input and writes it; reading and writing that must give the same bytes. Returns whether it was accepted.
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
