//! The last look at the store: a power cut of the ledger if its store has a disk, then the whole log, and the tables as an
//! opening and as a rebuild give them.

use super::{TableAtRest, director::Course};
use crate::{
    cast::LEDGER,
    invariant::{Rest, WholeLog},
};
use kernel::{
    ledger::Ledger,
    planted::{Bug, Planted},
    prove,
    record::Hash,
    store::{Store, StoreError, memory::MemoryStore, redb::RedbStore},
};
use sim::{Control, Disk, Open};
use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Where a run's ledger keeps its frames, so that they can be read when the run is at rest.
#[derive(Clone)]
pub(super) enum Shelf {
    /// In memory.
    Memory(MemoryStore),
    /// In redb on the ledger's simulated disk.
    Redb,
    /// In redb on the ledger's real disk, which is copied into this folder to be read.
    RealRedb(PathBuf),
}

impl Shelf {
    /// How the ledger's process opens its store.
    pub(super) fn opener(&self) -> crate::cast::OpenStore {
        match self.clone() {
            Shelf::Memory(store) => Arc::new(move |_| Ok(Box::new(store.clone()) as Box<dyn Store>)),
            Shelf::Redb | Shelf::RealRedb(_) => Arc::new(|disk| opened(&disk)),
        }
    }
}

fn opened(disk: &Disk) -> Result<Box<dyn Store>, StoreError> {
    RedbStore::open(disk).map(|store| Box::new(store) as Box<dyn Store>)
}

/// What the store holds at rest.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// The whole log.
    pub log: WholeLog,
    /// The tables as the store's own opening gives them.
    pub opened: Vec<(u16, Hash)>,
    /// The tables as a rebuild from the log gives them.
    pub rebuilt: Vec<(u16, Hash)>,
    /// What could not be read, and why: the store is damaged, or its log cannot be.
    pub unreadable: Option<String>,
}

impl Found {
    /// Each table's two hashes, by number.
    pub(super) fn tables(&self) -> Vec<TableAtRest> {
        let hex = |tables: &[(u16, Hash)], number| {
            let hash = tables.iter().find(|(of, _)| *of == number).map(|(_, hash)| *hash)?;
            Some(blake3::Hash::from_bytes(hash).to_hex().to_string())
        };
        let numbers: BTreeSet<u16> = self.opened.iter().chain(&self.rebuilt).map(|(number, _)| *number).collect();
        let table = |number| {
            let (opened, rebuilt) = (hex(&self.opened, number), hex(&self.rebuilt, number));
            TableAtRest { number, opened, rebuilt }
        };
        numbers.into_iter().map(table).collect()
    }

    /// What invariants are shown.
    pub(super) fn rest(&self, course: &Course) -> Rest<'_> {
        Rest { log: &self.log, opened: &self.opened, rebuilt: &self.rebuilt, converged: *course == Course::Converged }
    }
}

/// Looks. A run that was stopped is left as it stands and only its log is read.
pub(super) fn look(control: &Control, shelf: &Shelf, bugs: &[Bug], course: &Course) -> Found {
    let stopped = *course == Course::Stopped;
    if matches!(shelf, Shelf::Redb) && !stopped {
        control.power_cut(LEDGER).expect("the native engine has power cuts");
    }
    control.dismiss(); // so that of all tables only those being looked at are in memory
    let open = || match shelf {
        Shelf::Memory(store) => Ok(Box::new(store.clone()) as Box<dyn Store>),
        Shelf::Redb => opened(&control.disk_image(LEDGER)),
        Shelf::RealRedb(folder) => {
            let copied = copied(&control.disk_image(LEDGER), folder);
            opened(&copied.map_err(|source| StoreError::Device { doing: "be copied", source: source.into() })?)
        }
    };
    let mut found = Found::default();
    if let Err(why) = read(&mut found, open, bugs, stopped) {
        found.unreadable = Some(why);
    }
    found
}

/// A copy of a real disk, which the ledger's process still has open: an opening writes.
fn copied(from: &Disk, folder: &Path) -> io::Result<Disk> {
    let copy = Disk::at(folder)?;
    for name in copy.list()? {
        copy.remove(&name)?;
    }
    for name in from.list()? {
        let file = from.open(&name, Open::Existing)?;
        let mut bytes = vec![0; usize::try_from(file.len()?).map_err(io::Error::other)?];
        file.read_at(0, &mut bytes)?;
        copy.open(&name, Open::New)?.write_at(0, &bytes)?;
    }
    Ok(copy)
}

fn read(
    found: &mut Found,
    open: impl Fn() -> Result<Box<dyn Store>, StoreError>,
    bugs: &[Bug],
    stopped: bool,
) -> Result<(), String> {
    // One after the other, so that what an opening loads is gone when the log is read.
    let opening = || {
        let ledger = Ledger::open(open().map_err(|error| error.to_string())?, Planted::these(bugs));
        Ok(ledger.map_err(|error| error.to_string())?.table_hashes())
    };
    let opened: Option<Result<_, String>> = (!stopped).then(opening);
    let frames = open().and_then(|mut store| store.log(0)).map_err(|error| error.to_string())?;
    found.log = WholeLog::of(frames)?;
    let Some(opened) = opened else { return Ok(()) };
    let rebuilt = prove::rebuild(found.log.frames()).map_err(|error| error.to_string())?;
    found.rebuilt = rebuilt.tables.iter().map(|table| (table.number, table.hash)).collect();
    found.opened = opened?;
    Ok(())
}
