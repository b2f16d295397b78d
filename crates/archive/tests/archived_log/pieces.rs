//! Pieces are created from a log, stored by name and read back, while the archive changes.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use archive::chain::Pieces;
use archive::contents::ContentsErrorKind;
use archive::encryption::{Identities, Recipients};
use archive::manifest::{Archiving, Manifest, ManifestError};
use archive::name::{PieceName, Timeline};
use archive::next_piece::{Next, next};
use archive::sealed::{NewObject, SealError, seal, unseal};
use binlog_format::gtid::GtidSet;
use binlog_store::{FileNumber, LogPlace};
use raft_types::{MemberId, OpId, RingId};
use testkit::log_entries::gtid;

use crate::encrypted::new_keys;
use crate::ring::{Ring, entries, id, ring};

/// Objects by name.
#[derive(Default, Clone)]
struct Storage(BTreeMap<String, Vec<u8>>, Option<(Recipients, Identities)>);

impl Storage {
    fn encrypted() -> Self {
        Self(BTreeMap::new(), Some(new_keys()))
    }

    fn pieces(&self) -> Pieces {
        Pieces::of_names(self.0.keys())
    }

    fn manifest(&self, piece: PieceName) -> Result<Manifest, ManifestError> {
        Manifest::read(&self.0[&piece.manifest()], piece, Some(ring()))
    }

    /// Archives everything committed, as a member does; returns the number of pieces.
    fn archive(&mut self, of: &Ring, committed: OpId) -> usize {
        let log = of.log(committed);
        for done in 0.. {
            let pieces = self.pieces();
            let history = pieces.history(Timeline::FIRST);
            let (piece, begun) = match next(&pieces, Timeline::FIRST, &log) {
                Next::Continue(piece) | Next::AfterGap { piece, .. } | Next::Fill(piece) => {
                    (piece, piece.start)
                }
                Next::Whole(piece) => (piece, 0),
                Next::Nothing => return done,
            };
            let mut chain = history.iter().flat_map(|run| &run.pieces);
            let place = LogPlace {
                file: piece.file,
                offset: begun,
            };
            let before = chain.find(|before| before.continues_at() == place);
            let before = before.map(|before| self.manifest(*before).unwrap());
            let bytes = of.bytes(piece.file);
            let range = piece.start as usize..piece.end as usize;
            let mut object = Vec::new();
            let recipients = self.1.as_ref().map(|(recipients, _)| recipients.clone());
            let new = NewObject::of(piece, recipients);
            let (contents, stored) = seal(new, &bytes[range], &mut object).unwrap();
            let gtids_before = match (&before, &contents.beginning) {
                (_, Some(beginning)) => beginning.previous_gtids.clone(),
                (Some(before), None) => before.gtids_after(),
                (None, None) => GtidSet::new(),
            };
            let archiving = Archiving {
                ring: ring(),
                member: MemberId(3),
                now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000),
                gtids_before,
                before: before.map(|before| before.as_before()),
            };
            let manifest = Manifest::of(piece, &contents, stored, archiving);
            self.0.insert(manifest.object.name.clone(), object);
            self.0.insert(piece.manifest(), manifest.to_bytes());
        }
        unreachable!()
    }

    fn read(&self, piece: PieceName) -> Result<Vec<u8>, SealError> {
        let manifest = self.manifest(piece).unwrap();
        let mut bytes = Vec::new();
        let identities = self.1.as_ref().map(|(_, identities)| identities.clone());
        unseal(
            &manifest,
            &identities.unwrap_or_default(),
            self.0[&manifest.object.name].as_slice(),
            &mut bytes,
        )?;
        Ok(bytes)
    }

    /// The files of the archive's only run.
    fn restored(&self) -> BTreeMap<FileNumber, Vec<u8>> {
        let history = self.pieces().history(Timeline::FIRST);
        assert_eq!(history.len(), 1);
        let mut files: BTreeMap<FileNumber, Vec<u8>> = BTreeMap::new();
        for piece in &history[0].pieces {
            let bytes = self.read(*piece).unwrap();
            files.entry(piece.file).or_default().extend(bytes);
        }
        files
    }
}

#[test]
fn committed_log_is_read_back_unchanged() {
    comes_back(Storage::default());
}

#[test]
fn encrypted_log_is_read_back_unchanged() {
    comes_back(Storage::encrypted());
}

fn comes_back(mut storage: Storage) {
    let mut of = Ring::new();
    for until in [3, 5, 14, 15, 16, 17, 30] {
        let from = of
            .store
            .handle()
            .bounds()
            .map_or(0, |(_, last)| last.index + 1);
        of.append(entries(from..until + 3));
        storage.archive(&of, id(until));
        let committed = of.store.handle().committed_end(Some(id(until)));
        for (file, bytes) in storage.restored() {
            let mut expected = of.bytes(file);
            if file == committed.file {
                expected.truncate(committed.offset as usize);
            }
            assert_eq!(bytes, expected, "{file}");
        }
        let run = storage.pieces().history(Timeline::FIRST).pop().unwrap();
        let manifests = run
            .pieces
            .iter()
            .map(|piece| storage.manifest(*piece).unwrap());
        let manifests: Vec<_> = manifests.collect();
        // The header of the next file follows the end of each file.
        let mut entries = manifests.iter().filter_map(|manifest| manifest.last);
        assert_eq!(entries.next_back(), Some(id(until)));
        let last = manifests.last().unwrap();
        let gtids = of.store.handle().committed_gtids(Some(id(until)));
        assert_eq!(last.gtids_after(), gtids);
    }
    assert_eq!(storage.archive(&of, id(30)), 0);
    // Closed files are archived whole, and each manifest names the previous one.
    let superfluous = storage.pieces().superfluous();
    assert!(!superfluous.is_empty());
    for piece in superfluous {
        storage.0.remove(&piece.manifest());
        storage
            .0
            .retain(|name, _| PieceName::of_object(name) != Some(piece));
    }
    let history = storage.pieces().history(Timeline::FIRST);
    let whole: Vec<_> = history[0]
        .pieces
        .iter()
        .map(PieceName::is_whole_file)
        .collect();
    assert!(whole[..3].iter().all(|whole| *whole));
    assert_eq!(storage.restored().len(), 4);
    for (before, piece) in history[0].pieces.iter().zip(&history[0].pieces[1..]) {
        let named = storage.manifest(*piece).unwrap().before.unwrap();
        let manifest = storage.manifest(*before).unwrap();
        if piece.start == 0 && before.is_whole_file() && named.manifest == before.manifest() {
            assert_eq!(named, manifest.as_before());
        }
    }
}

#[test]
fn unarchived_purged_log_is_the_only_gap() {
    let mut of = Ring::new();
    let mut storage = Storage::default();
    of.append(entries(0..30));
    storage.archive(&of, id(3));
    of.purge(id(15));
    storage.archive(&of, id(29));
    let history = storage.pieces().history(Timeline::FIRST);
    assert_eq!(history.len(), 2);
    let begins = history[1].pieces[0];
    assert_eq!(begins.begins().file, of.log(id(29)).files[0].0);
    let manifest = storage.manifest(begins).unwrap();
    assert_eq!(manifest.before, None);
    // The GTIDs in the gap are known, although its entries are not archived.
    assert!(manifest.gtids_before.contains(&gtid(12)));
}

#[test]
fn manifest_describes_its_piece() {
    let mut of = Ring::new();
    let mut storage = Storage::default();
    of.append(entries(0..6));
    storage.archive(&of, id(5));
    let piece = storage.pieces().history(Timeline::FIRST)[0].pieces[0];
    let manifest = storage.manifest(piece).unwrap();
    assert_eq!((manifest.first, manifest.last), (Some(id(0)), Some(id(5))));
    assert_eq!(manifest.transactions, 5);
    assert_eq!(
        manifest.gtids,
        (1..=5).map(gtid).fold(GtidSet::new(), |mut set, gtid| {
            set.add(gtid);
            set
        })
    );
    let micros = |number: u64| Some((1_700_000_000 + number) * 1_000_000);
    assert_eq!(manifest.committed_from_us, micros(1));
    assert_eq!(manifest.committed_to_us, micros(5));
    let text = String::from_utf8(manifest.to_bytes()).unwrap();
    for line in [
        "\"version\": 2",
        "\"ring\": \"11111111-2222-3333-4444-555555555555\"",
        "\"gtids\": \"aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:2-6\"",
        "\"archived_at\": 1800000000",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[test]
fn damaged_objects_are_rejected() {
    is_noticed(Storage::default());
}

#[test]
fn damaged_encrypted_objects_are_rejected() {
    is_noticed(Storage::encrypted());
}

fn is_noticed(mut storage: Storage) {
    let mut of = Ring::new();
    of.append(entries(0..12));
    storage.archive(&of, id(11));
    let pieces = storage.pieces().history(Timeline::FIRST).remove(0).pieces;
    for piece in &pieces {
        let object = storage.manifest(*piece).unwrap().object.name;
        let good = storage.0[&object].clone();
        for at in (0..good.len()).step_by(7).chain([good.len() - 1]) {
            let mut damaged = good.clone();
            damaged[at] ^= 0x10;
            storage.0.insert(object.clone(), damaged);
            let refused = storage.read(*piece).unwrap_err();
            assert!(
                !matches!(refused, SealError::Encryption(_)),
                "byte {at}: {refused}"
            );
        }
        for len in (0..good.len()).step_by(11) {
            storage.0.insert(object.clone(), good[..len].to_vec());
            assert!(storage.read(*piece).is_err(), "cut at {len}");
        }
        let longer = [good.as_slice(), b"x"].concat();
        storage.0.insert(object.clone(), longer);
        assert!(storage.read(*piece).is_err());
        storage.0.insert(object, good);
        storage.read(*piece).unwrap();
    }
    // Another piece's object is intact, but is not this piece's object.
    let (one, other) = (pieces[0], pieces[1]);
    let name = |piece| storage.manifest(piece).unwrap().object.name;
    let (name, exchanged) = (name(one), storage.0[&name(other)].clone());
    storage.0.insert(name, exchanged);
    assert!(storage.read(one).is_err());
}

#[test]
fn manifest_of_another_piece_is_refused() {
    let mut of = Ring::new();
    let mut storage = Storage::default();
    of.append(entries(0..12));
    storage.archive(&of, id(11));
    let pieces = storage.pieces().history(Timeline::FIRST).remove(0).pieces;
    let bytes = &storage.0[&pieces[0].manifest()];
    let other = Manifest::read(bytes, pieces[1], Some(ring())).unwrap_err();
    assert!(matches!(other, ManifestError::Other(_)), "{other}");
    let stranger = RingId("99999999-2222-3333-4444-555555555555".parse().unwrap());
    let other = Manifest::read(bytes, pieces[0], Some(stranger)).unwrap_err();
    assert!(matches!(other, ManifestError::OtherRing(_)), "{other}");
    let later = String::from_utf8(bytes.clone()).unwrap();
    let later = later.replace("\"version\": 2", "\"version\": 3, \"shape\": {}");
    let other = Manifest::read(later.as_bytes(), pieces[0], Some(ring())).unwrap_err();
    assert_eq!(
        other,
        ManifestError::Later {
            found: 3,
            newest: 2
        }
    );
    for len in 0..bytes.len() - 1 {
        assert!(Manifest::read(&bytes[..len], pieces[0], Some(ring())).is_err());
    }
}

#[test]
fn damaged_local_log_is_not_archived() {
    let mut of = Ring::new();
    of.append(entries(0..6));
    let good = of.bytes(FileNumber::FIRST);
    let piece = PieceName {
        timeline: Timeline::FIRST,
        file: FileNumber::FIRST,
        start: 0,
        end: good.len() as u64,
        closed: false,
    };
    seal(NewObject::of(piece, None), good.as_slice(), std::io::sink()).unwrap();
    for at in 0..good.len() {
        let mut damaged = good.clone();
        damaged[at] ^= 0x01;
        assert!(
            seal(
                NewObject::of(piece, None),
                damaged.as_slice(),
                std::io::sink()
            )
            .is_err(),
            "byte {at}"
        );
    }
    for end in 1..good.len() as u64 {
        let part = PieceName { end, ..piece };
        let cut = seal(
            NewObject::of(part, None),
            &good[..end as usize],
            std::io::sink(),
        );
        // If the object is cut between two entries, the rest is a shorter valid piece.
        if let Err(SealError::Contents(error)) = &cut {
            assert_eq!(error.kind, ContentsErrorKind::WithinAnEntry);
        } else {
            cut.unwrap();
        }
    }
}
