//! redb behind the store port, on any [`Disk`]: the real database runs on the simulated disk as it does on a real one.
//!
//! - **A commit** is one write transaction, durable at once and in two phases: a sync that fails cannot leave a file that
//!   does not open. It dirties the tree of frames alone, because a commit costs the scattered pages it dirties.
//! - **Opening** checks the whole file, and ends in a commit of redb's own, so that what is given back is durable even when
//!   a kill left it in the page cache. The directory is synced for the same reason.
//! - **Creating** happens beside the name and is published by a rename: a cut inside it leaves nothing that has the name.
//! - **Dropping** never touches the disk: a store that is dropped is a process that is killed, and every opening is a recovery.
//! - **A panic** inside redb is damage, and so is every call after it.

use super::{Loaded, Row, Store, StoreError, StoredFrame};
use bytes::Bytes;
use redb::{
    Builder, Database, Durability, ReadTransaction, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition,
    WriteTransaction,
};
use sim::{Disk, File, Open};
use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The database.
const PUBLISHED: &str = "ledger.redb";
/// The database while it is being made.
const UNPUBLISHED: &str = "ledger.redb.new";
/// What redb may keep of the file in memory.
const CACHE_BYTES: usize = 4 << 20;

/// First sequence -> next sequence (little-endian `u64`), then the frame.
const FRAMES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("frames");
/// (table, key) -> value, as of the checkpoint.
const ROWS: TableDefinition<'_, (u16, &[u8]), &[u8]> = TableDefinition::new("rows");
/// The layout of these tables, and the checkpoint: its sequence (little-endian `u64`), then its digest.
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const LAYOUT: &str = "layout";
const LAYOUT_NOW: &[u8] = &[1];
const CHECKPOINT: &str = "checkpoint";

/// A ledger's frames and rows in one redb file.
pub struct RedbStore {
    /// `None` once redb has panicked.
    database: Option<Database>,
    plug: Plug,
    /// Sequence after the last stored frame's last record.
    next_seq: u64,
}

impl RedbStore {
    /// Opens the ledger's file on `disk`, making it if there is none. Blocks: call it inside
    /// [`World::offload`](sim::World::offload).
    pub fn open(disk: &Disk) -> Result<RedbStore, StoreError> {
        let names = disk.list().map_err(device("list its directory"))?;
        let has = |name: &str| names.iter().any(|there| there == name);
        if has(UNPUBLISHED) {
            disk.remove(UNPUBLISHED).map_err(device("remove an unfinished file"))?;
        }
        if !has(PUBLISHED) {
            if has(UNPUBLISHED) {
                // Else a power cut may keep the rename below and lose the removal, and publish what was unfinished.
                disk.sync_dir().map_err(device("forget an unfinished file"))?;
            }
            return RedbStore::create(disk);
        }
        // Whoever renamed it may have been killed before it synced the name.
        disk.sync_dir().map_err(device("make its name durable"))?;
        let file = disk.open(PUBLISHED, Open::Existing).map_err(device("open its file"))?;
        let mut store = RedbStore::over(file, true)?;
        store.next_seq = store.call("read its end", |database| {
            let reading = database.begin_read()?;
            let layout = reading.open_table(META)?.get(LAYOUT)?.map(|layout| layout.value().to_vec());
            let last = reading.open_table(FRAMES)?.last()?.map(|(first, stored)| framed(first.value(), stored.value()));
            Ok(match (layout.as_deref(), last) {
                (Some(LAYOUT_NOW), last) => last.transpose().map(|last| last.map_or(0, |frame| frame.next_seq)),
                (other, _) => Err(damaged(format!("its layout is {other:?} and this build reads {LAYOUT_NOW:?}"))),
            })
        })??;
        Ok(store)
    }

    /// The handle goes on under the published name: what it wrote was synced before the rename, and nobody else has the file.
    fn create(disk: &Disk) -> Result<RedbStore, StoreError> {
        let file = disk.open(UNPUBLISHED, Open::New).map_err(device("make its file"))?;
        let mut store = RedbStore::over(file.clone(), false)?;
        store.write("initialise", |writing| {
            writing.open_table(FRAMES)?;
            writing.open_table(ROWS)?;
            writing.open_table(META)?.insert(LAYOUT, LAYOUT_NOW)?;
            Ok(())
        })?;
        file.sync().map_err(device("sync its new file"))?;
        disk.rename(UNPUBLISHED, PUBLISHED).map_err(device("publish its new file"))?;
        disk.sync_dir().map_err(device("make its name durable"))?;
        Ok(store)
    }

    fn over(file: File, check: bool) -> Result<RedbStore, StoreError> {
        let plug = Plug::default();
        let backend = Backend { file, pulled: plug.pulled.clone() };
        let database = guarded("open", || {
            Ok(Builder::new()
                .set_cache_size(CACHE_BYTES)
                .set_check_integrity_on_open(check)
                .create_with_backend(backend)?)
        })?;
        Ok(RedbStore { database: Some(database), plug, next_seq: 0 })
    }

    fn call<T>(
        &mut self,
        doing: &'static str,
        work: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let Some(database) = self.database.take() else {
            return Err(damaged("redb panicked before; open the store again".to_owned()));
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| work(&database)));
        match outcome {
            Ok(outcome) => {
                self.database = Some(database);
                outcome.map_err(|error| broken(doing, error))
            }
            Err(panic) => {
                self.plug.pull();
                discard(database);
                Err(panicked(doing, &*panic))
            }
        }
    }

    fn read<T>(
        &mut self,
        doing: &'static str,
        work: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        self.call(doing, |database| work(&database.begin_read()?))
    }

    fn write(
        &mut self,
        doing: &'static str,
        work: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), StoreError> {
        self.call(doing, |database| {
            let mut writing = database.try_begin_write()?;
            writing.set_durability(Durability::Immediate)?;
            writing.set_two_phase_commit(true);
            work(&writing)?;
            writing.commit()?;
            Ok(())
        })
    }
}

impl Store for RedbStore {
    fn load(&mut self) -> Result<Loaded, StoreError> {
        let (checkpoint, rows) = self.read("load its checkpoint", |reading| {
            let checkpoint = reading.open_table(META)?.get(CHECKPOINT)?.map(|stored| stored.value().to_vec());
            let mut rows = Vec::new();
            for row in reading.open_table(ROWS)?.iter()? {
                let (key, value) = row?;
                let (table, key) = key.value();
                rows.push(Row { table, key: key.to_vec(), value: Some(value.value().to_vec()) });
            }
            Ok((checkpoint, rows))
        })?;
        let Some(stored) = checkpoint else {
            if let Some(row) = rows.first() {
                return Err(damaged(format!("table {} has rows and no checkpoint was taken", row.table)));
            }
            return Ok(Loaded { frames: self.log(0)?, ..Loaded::default() });
        };
        let (checkpoint, digest) = numbered(&stored)
            .and_then(|(checkpoint, digest)| Some((checkpoint, digest.try_into().ok()?)))
            .ok_or_else(|| damaged(format!("a checkpoint of {} bytes", stored.len())))?;
        let frames = self.log(checkpoint)?;
        let starts = frames.first().map_or(self.next_seq, |frame| frame.first_seq);
        if starts != checkpoint {
            return Err(damaged(format!("a checkpoint at {checkpoint}, and frames go on at {starts}")));
        }
        Ok(Loaded { rows, checkpoint, digest: Some(digest), frames })
    }

    fn log(&mut self, from: u64) -> Result<Vec<StoredFrame>, StoreError> {
        let frames: Result<Vec<StoredFrame>, StoreError> = self.read("read its log", |reading| {
            let frames = reading.open_table(FRAMES)?;
            let holding = frames.range(..=from)?.next_back().transpose()?.map_or(0, |(first, _)| first.value());
            let mut read = Vec::new();
            for frame in frames.range(holding..)? {
                let (first, stored) = frame?;
                read.push(framed(first.value(), stored.value()));
            }
            Ok(read.into_iter().collect())
        })?;
        let mut frames = frames?;
        if frames.first().is_some_and(|frame| frame.next_seq <= from) {
            frames.remove(0);
        }
        let mut ends = frames.iter().map(|frame| frame.next_seq);
        let gap = frames.iter().skip(1).find(|frame| Some(frame.first_seq) != ends.next());
        match gap {
            Some(frame) => {
                Err(damaged(format!("frame {} does not begin where the one before it ends", frame.first_seq)))
            }
            None => Ok(frames),
        }
    }

    fn commit(&mut self, frame: &StoredFrame) -> Result<(), StoreError> {
        assert!(frame.next_seq > frame.first_seq, "a frame holds at least one record");
        if frame.first_seq != self.next_seq {
            return Err(StoreError::NotNext { first_seq: frame.first_seq, next_seq: self.next_seq });
        }
        let stored = [&frame.next_seq.to_le_bytes(), &*frame.bytes].concat();
        self.write("commit a frame", |writing| {
            writing.open_table(FRAMES)?.insert(frame.first_seq, &*stored)?;
            Ok(())
        })?;
        self.next_seq = frame.next_seq;
        Ok(())
    }

    fn checkpoint(&mut self, next_seq: u64, changed: &[Row], digest: [u8; 32]) -> Result<(), StoreError> {
        assert_eq!(next_seq, self.next_seq, "a checkpoint stands at the end of the log");
        let stored = [next_seq.to_le_bytes().as_slice(), digest.as_slice()].concat();
        self.write("save a checkpoint", |writing| {
            let mut rows = writing.open_table(ROWS)?;
            for Row { table, key, value } in changed {
                match value {
                    Some(value) => rows.insert((*table, &**key), &**value)?,
                    None => rows.remove((*table, &**key))?,
                };
            }
            writing.open_table(META)?.insert(CHECKPOINT, &*stored)?;
            Ok(())
        })
    }
}

impl Drop for RedbStore {
    fn drop(&mut self) {
        self.plug.pull();
        if let Some(database) = self.database.take() {
            discard(database);
        }
    }
}

/// Pulled, it cuts redb off from its file, which is then as a killed process leaves it.
#[derive(Default)]
struct Plug {
    pulled: Arc<AtomicBool>,
}

impl Plug {
    fn pull(&self) {
        self.pulled.store(true, Ordering::Relaxed);
    }
}

/// redb closes its file when it is dropped, which is to fail quietly on a pulled plug.
fn discard(database: Database) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(database)));
}

#[derive(Debug)]
struct Backend {
    file: File,
    pulled: Arc<AtomicBool>,
}

impl Backend {
    fn file(&self) -> io::Result<&File> {
        match self.pulled.load(Ordering::Relaxed) {
            false => Ok(&self.file),
            true => Err(io::Error::other("the store was dropped")),
        }
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file()?.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file()?.read_at(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file()?.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file()?.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file()?.write_at(offset, data)
    }
}

/// A `u64` in front of the rest.
fn numbered(stored: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = stored.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), rest))
}

fn framed(first_seq: u64, stored: &[u8]) -> Result<StoredFrame, StoreError> {
    match numbered(stored) {
        Some((next_seq, bytes)) if next_seq > first_seq => {
            Ok(StoredFrame { first_seq, next_seq, bytes: Bytes::copy_from_slice(bytes) })
        }
        _ => Err(damaged(format!("frame {first_seq} does not say where it ends"))),
    }
}

fn guarded<T>(doing: &'static str, work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, StoreError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(outcome) => outcome.map_err(|error| broken(doing, error)),
        Err(panic) => Err(panicked(doing, &*panic)),
    }
}

fn damaged(what: String) -> StoreError {
    StoreError::Damaged { what }
}

fn panicked(doing: &'static str, panic: &(dyn std::any::Any + Send)) -> StoreError {
    let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    damaged(format!("redb panicked when it was to {doing}: {}", said.unwrap_or("it did not say why")))
}

fn device(doing: &'static str) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Device { doing, source: Box::new(source) }
}

/// Bytes that make no sense are damage; a file shorter than it says is too. Everything else is the device's word.
fn broken(doing: &'static str, error: redb::Error) -> StoreError {
    let nonsense = match &error {
        redb::Error::Io(source) => matches!(source.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof),
        redb::Error::Corrupted(_)
        | redb::Error::LockPoisoned(_)
        | redb::Error::UpgradeRequired(_)
        | redb::Error::TableDoesNotExist(_)
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TypeDefinitionChanged { .. }
        | redb::Error::TableIsMultimap(_) => true,
        _ => false,
    };
    match nonsense {
        true => damaged(format!("redb cannot {doing}: {error}")),
        false => StoreError::Device { doing, source: Box::new(error) },
    }
}
