//! Writes a binlog file of our own making to standard output, to be read with
//! `mysqlbinlog --verify-binlog-checksum -v`.

use std::io::Write;

use binlog_format::MAGIC;
use binlog_format::canonical::stamp_payload;
use binlog_format::events::{
    EncodeEvent, EventOrigin, FormatDescription, Ignorable, PreviousGtids, Rotate,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut payload = FormatDescription::built_in_event();
    PreviousGtids::default().encode_into(EventOrigin::default(), &mut payload);
    let marker = Ignorable {
        body: b"a marker".as_slice().into(),
    };
    marker.encode_into(Ignorable::origin(0, 0), &mut payload);
    Rotate::to("binlog.000002").encode_into(EventOrigin::default(), &mut payload);

    let mut file = MAGIC.to_vec();
    stamp_payload(&payload, MAGIC.len() as u64, &mut file)?;
    std::io::stdout().write_all(&file)?;
    Ok(())
}
