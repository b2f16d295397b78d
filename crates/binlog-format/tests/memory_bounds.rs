//! Readers of untrusted bytes use memory in proportion to the input, or up to their limit, whatever lengths the bytes state. This is a
//! single test, because it measures the whole process.

mod golden_events;

use std::borrow::Cow;

use binlog_format::DecodeError;
use binlog_format::checksum::ChecksumAlgorithm;
use binlog_format::events::{Compression, TransactionPayload};
use binlog_format::fuzzing::{
    MAX_TRANSACTION_BYTES, MAX_UNCOMPRESSED_BYTES, event_of, read_as_everything, read_as_stream,
};
use peak_alloc::PeakAlloc;

use golden_events::golden_events;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Maximum bytes of memory per input byte. A GTID set needs the most, if every source has a single number.
const PER_INPUT_BYTE: usize = 16;
/// Memory that does not depend on the input: errors, small buffers, and two images of the widest possible table in the test that has such a
/// table.
const FIXED: usize = 32 << 10;
const WIDEST_ROW: usize = 320 << 10;

fn peak_of(run: impl FnOnce()) -> usize {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    run();
    MEMORY.peak_usage().saturating_sub(before)
}

fn check(what: &str, input: &[u8]) {
    // The allowance includes the test's own copies of the input.
    let allowed = PER_INPUT_BYTE * input.len()
        + FIXED
        + WIDEST_ROW
        + (MAX_TRANSACTION_BYTES + MAX_UNCOMPRESSED_BYTES) as usize;
    let peak = peak_of(|| read_as_everything(input));
    assert!(
        peak <= allowed,
        "{what}: {} bytes of input took {peak} bytes of memory",
        input.len()
    );
    let peak = peak_of(|| read_as_stream(input, ChecksumAlgorithm::None));
    assert!(
        peak <= allowed,
        "{what}: {} bytes of stream took {peak} bytes of memory",
        input.len()
    );
}

fn bomb(uncompressed_size: Option<u64>) -> TransactionPayload<'static> {
    const INFLATED: usize = 256 << 20;
    let mut encoder = zstd::stream::Encoder::new(Vec::new(), 19).expect("encoder");
    let zeros = vec![0; 1 << 20];
    for _ in 0..INFLATED / zeros.len() {
        std::io::Write::write_all(&mut encoder, &zeros).expect("memory");
    }
    let block = encoder.finish().expect("memory");
    assert!(block.len() < 64 << 10, "{} bytes are no bomb", block.len());
    TransactionPayload {
        compression: Compression::Zstd,
        uncompressed_size,
        block: Cow::Owned(block),
    }
}

#[test]
fn memory_stays_within_its_bounds() {
    // Length fields of all widths with values larger than the available bytes.
    for claim in [
        [0xff; 9].as_slice(),
        &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[0xfd, 0xff, 0xff, 0xff],
    ] {
        for lead in 0..64 {
            let mut body = vec![0; lead];
            body.extend_from_slice(claim);
            body.extend([0; 16]);
            check("a huge length", &body);
        }
    }
    // Sets that announce many sources, or many intervals.
    for head in [u64::MAX >> 8, 1 << 40, 1 << 56 | 0xffff_ffff_ff00 | 1] {
        let mut set = head.to_le_bytes().to_vec();
        set.extend([7; 16]);
        set.extend(u64::MAX.to_le_bytes());
        check("a huge set", &set);
    }
    // The set that needs the most memory: each source has one number.
    let sources = 2000_u64;
    let mut costly = sources.to_le_bytes().to_vec();
    for source in 0..sources {
        costly.extend([source.to_le_bytes(), source.to_be_bytes()].concat());
        costly.extend([1_u64, 1, 2].map(u64::to_le_bytes).concat());
    }
    check("a costly set", &costly);
    // A transaction that announces a much larger size than its own.
    let golden = golden_events();
    for event in golden
        .iter()
        .filter(|event| event.event_type().code() == 33)
    {
        let mut body = event.canonical().body()[..42 + 7].to_vec();
        body.extend([0xfe, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0]);
        check("a huge announcement", &event_of(33, &body));
    }
    // A transaction that never ends.
    let mut endless: Vec<u8> = golden
        .iter()
        .find(|event| event.event_type().code() == 33)
        .expect("a GTID")
        .bytes()
        .to_vec();
    let begin = golden
        .iter()
        .find(|event| event.bytes().ends_with(b"BEGIN"))
        .expect("a BEGIN");
    endless.extend_from_slice(begin.bytes());
    for _ in 0..200 {
        endless.extend(event_of(30, &[1; 1000]));
    }
    let peak = peak_of(|| read_as_stream(&endless, ChecksumAlgorithm::None));
    // Memory for the copy of the stream and for the payload, which may double when it grows.
    assert!(
        peak <= endless.len() + 3 * MAX_TRANSACTION_BYTES as usize + FIXED,
        "{peak}"
    );

    // Rows as wide as a table may be, and wider; and statements with many schemas.
    for claim in [0x0fff_u16, 0x1000, 0x1001, 0xffff] {
        let mut wide = vec![0, 0, 0, 0, 0, 0, 0, 0, 0xfc];
        wide.extend(claim.to_le_bytes());
        wide.extend([0xff; 0x2000]);
        wide.extend([0; 0x4000]);
        check("a wide row", &wide);
    }
    check("many short names", &[&[12, 16][..], &[0; 3000]].concat());

    for event in &golden {
        check("a golden event", event.bytes());
    }

    // A quarter of a gibibyte is compressed to a few kibibytes; the stated size is right, wrong or missing.
    let mut payload = bomb(None);
    for claim in [
        None,
        Some(256 << 20),
        Some(u64::MAX),
        Some(100),
        Some(MAX_UNCOMPRESSED_BYTES),
    ] {
        payload.uncompressed_size = claim;
        let mut refusal = None;
        let peak = peak_of(|| refusal = payload.decompress(MAX_UNCOMPRESSED_BYTES).err());
        assert!(
            matches!(
                refusal,
                Some(DecodeError::TooLarge { .. } | DecodeError::Invalid { .. })
            ),
            "{claim:?}: {refusal:?}"
        );
        assert!(
            peak <= MAX_UNCOMPRESSED_BYTES as usize + FIXED,
            "{claim:?} took {peak} bytes"
        );
    }
}
