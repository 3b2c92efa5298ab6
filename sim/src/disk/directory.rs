//! A simulated directory: names, files, and how to take each change back.
//!
//! Names and contents become durable apart from each other: a directory sync keeps names, a file sync keeps content
//! and length. Every change gives back an [`Undo`]; applied newest first they restore the directory exactly.

use super::{
    Open,
    pages::{Edited, Pages, Synced},
    survival::Survival,
};
use std::{collections::BTreeMap, io, sync::Arc};

/// A file whatever its name: its number in order of making. Handles share it, so that its count tells whether any is left.
pub(super) type FileId = Arc<u64>;

#[derive(Clone, Default)]
pub(super) struct Directory {
    files: BTreeMap<u64, Entry>,
    made: u64,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    /// Name changes since the last directory sync, oldest first.
    pending: Vec<NameChange>,
    /// Some file may have lost its last name since the last [`Directory::collect`].
    orphaned: bool,
}

#[derive(Clone)]
struct Entry {
    id: FileId,
    pages: Pages,
}

/// A change of names that a power cut keeps whole or loses whole.
///
/// It speaks of the file, not of its old name: a surviving rename takes the file from whatever name it then has, so
/// that no subset of changes leaves one file under two names.
#[derive(Clone)]
pub(super) enum NameChange {
    Named { file: u64, name: String },
    Removed { file: u64 },
}

/// How to take one operation back.
pub(super) enum Undo {
    Nothing,
    Edit { file: u64, edited: Edited },
    Sync { file: u64, synced: Synced },
    Create { name: String },
    Rename { from: String, to: String, displaced: Option<u64> },
    Remove { name: String, file: u64 },
    SyncNames { durable_names: BTreeMap<String, u64>, pending: Vec<NameChange> },
}

impl Directory {
    pub(super) fn open(&mut self, name: &str, how: Open) -> io::Result<(FileId, Undo)> {
        match (how, self.names.get(name)) {
            (Open::Existing, Some(file)) => Ok((self.files[file].id.clone(), Undo::Nothing)),
            (Open::Existing, None) => Err(absent(name)),
            (Open::New, Some(_)) => {
                Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("there is a file {name:?} already")))
            }
            (Open::New, None) => {
                let id = FileId::new(self.made);
                self.made += 1;
                self.files.insert(*id, Entry { id: id.clone(), pages: Pages::default() });
                self.names.insert(name.to_owned(), *id);
                self.pending.push(NameChange::Named { file: *id, name: name.to_owned() });
                Ok((id, Undo::Create { name: name.to_owned() }))
            }
        }
    }

    pub(super) fn list(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<Undo> {
        let file = *self.names.get(from).ok_or_else(|| absent(from))?;
        if from == to {
            return Ok(Undo::Nothing);
        }
        self.names.remove(from);
        let displaced = self.names.insert(to.to_owned(), file);
        self.orphaned |= displaced.is_some();
        self.pending.push(NameChange::Named { file, name: to.to_owned() });
        Ok(Undo::Rename { from: from.to_owned(), to: to.to_owned(), displaced })
    }

    pub(super) fn remove(&mut self, name: &str) -> io::Result<Undo> {
        let file = self.names.remove(name).ok_or_else(|| absent(name))?;
        self.orphaned = true;
        self.pending.push(NameChange::Removed { file });
        Ok(Undo::Remove { name: name.to_owned(), file })
    }

    pub(super) fn sync_names(&mut self) -> Undo {
        let pending = std::mem::take(&mut self.pending);
        let durable_names = std::mem::replace(&mut self.durable_names, self.names.clone());
        Undo::SyncNames { durable_names, pending }
    }

    pub(super) fn len(&self, file: u64) -> io::Result<u64> {
        Ok(self.pages(file)?.len())
    }

    pub(super) fn read(&self, file: u64, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.pages(file)?.read(offset, into)
    }

    pub(super) fn write(&mut self, file: u64, offset: u64, from: &[u8]) -> io::Result<Undo> {
        let edited = self.pages_mut(file)?.write(offset, from)?;
        Ok(Undo::Edit { file, edited })
    }

    pub(super) fn set_len(&mut self, file: u64, len: u64) -> io::Result<Undo> {
        let edited = self.pages_mut(file)?.set_len(len);
        Ok(Undo::Edit { file, edited })
    }

    pub(super) fn sync(&mut self, file: u64) -> io::Result<Undo> {
        let synced = self.pages_mut(file)?.sync();
        Ok(Undo::Sync { file, synced })
    }

    /// Takes back the newest change that was not taken back yet.
    pub(super) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Nothing => {}
            Undo::Edit { file, edited } => self.changed(file).unedit(edited),
            Undo::Sync { file, synced } => self.changed(file).unsync(synced),
            Undo::Create { name } => {
                let file = self.names.remove(&name).expect("a file made and not yet renamed has its name");
                self.files.remove(&file);
                self.pending.pop();
            }
            Undo::Rename { from, to, displaced } => {
                let file = self.names.remove(&to).expect("a renamed file has its new name");
                self.names.insert(from, file);
                self.names.extend(displaced.map(|displaced| (to, displaced)));
                self.pending.pop();
            }
            Undo::Remove { name, file } => {
                self.names.insert(name, file);
                self.pending.pop();
            }
            Undo::SyncNames { durable_names, pending } => {
                self.durable_names = durable_names;
                self.pending = pending;
            }
        }
    }

    /// Loses power; afterwards all that is left is durable.
    pub(super) fn cut(&mut self, survival: &mut Survival<'_>) {
        for change in std::mem::take(&mut self.pending) {
            if survival.survives() {
                let (NameChange::Named { file, .. } | NameChange::Removed { file }) = change;
                self.durable_names.retain(|_, named| *named != file);
                if let NameChange::Named { name, .. } = change {
                    self.durable_names.insert(name, file);
                }
            }
        }
        for entry in self.files.values_mut() {
            entry.pages.cut(survival);
        }
        self.names = self.durable_names.clone();
        let named: std::collections::BTreeSet<u64> = self.names.values().copied().collect();
        self.files.retain(|file, _| named.contains(file));
        self.orphaned = false;
    }

    /// Frees files that nothing can reach again: without a name, durable or not, and without a handle. For a moment
    /// when no undo is kept.
    pub(super) fn collect(&mut self) {
        if !self.orphaned || !self.pending.is_empty() {
            return;
        }
        let named: std::collections::BTreeSet<u64> = self.names.values().copied().collect();
        self.files.retain(|file, entry| named.contains(file) || Arc::strong_count(&entry.id) > 1);
        self.orphaned = self.files.len() > named.len();
    }

    #[cfg(test)]
    pub(super) fn files(&self) -> usize {
        self.files.len()
    }

    fn pages(&self, file: u64) -> io::Result<&Pages> {
        self.files.get(&file).map(|entry| &entry.pages).ok_or_else(stale)
    }

    fn pages_mut(&mut self, file: u64) -> io::Result<&mut Pages> {
        self.files.get_mut(&file).map(|entry| &mut entry.pages).ok_or_else(stale)
    }

    fn changed(&mut self, file: u64) -> &mut Pages {
        &mut self.files.get_mut(&file).expect("a file outlives the undo of its changes").pages
    }
}

fn absent(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no file {name:?}"))
}

fn stale() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the file was lost in a crash, and its handle outlived it")
}
