//! A directory of files, enough for a database's storage port; simulated or real.

mod directory;
mod pages;
mod real;
mod simulated;
mod survival;
#[cfg(test)]
mod tests;

pub(crate) use simulated::{Felled, SimDisk};

use self::{
    real::{RealDisk, RealFile},
    simulated::SimFile,
};
use serde::{Deserialize, Serialize};
use std::io;

/// What disk operations cost in virtual time, in nanoseconds each. A real disk ignores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskSpec {
    /// A read.
    pub read_ns: u64,
    /// A write into the page cache.
    pub write_ns: u64,
    /// A sync of a file or of the directory.
    pub sync_ns: u64,
}

impl DiskSpec {
    /// A virtual machine's flash disk: 20 µs a read, 5 µs a write, 400 µs a sync.
    pub const FLASH: DiskSpec = DiskSpec { read_ns: 20_000, write_ns: 5_000, sync_ns: 400_000 };
}

/// How [`Disk::open`] treats a file that is or is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// It must be there.
    Existing,
    /// It must not be there; it is made empty.
    New,
}

/// A node's disk: one flat directory. Cheap to clone, `Send`, used only inside [`World::offload`](crate::World::offload).
///
/// A name is any text but the empty one, `.`, `..`, and what contains `/` or a zero byte; these are refused as `InvalidInput`.
#[derive(Clone)]
pub struct Disk {
    handle: Handle,
}

#[derive(Clone)]
enum Handle {
    Simulated(SimDisk),
    Real(RealDisk),
}

/// An open file of a [`Disk`].
#[derive(Clone, Debug)]
pub struct File {
    handle: OpenFile,
}

#[derive(Clone, Debug)]
enum OpenFile {
    Simulated(SimFile),
    Real(RealFile),
}

impl Disk {
    /// A real directory, made if absent.
    pub fn at(path: &std::path::Path) -> io::Result<Disk> {
        RealDisk::at(path)
    }

    /// Opens a file for reading and writing.
    pub fn open(&self, name: &str, how: Open) -> io::Result<File> {
        let name = file_name(name)?;
        match &self.handle {
            Handle::Simulated(disk) => disk.open(name, how),
            Handle::Real(disk) => disk.open(name, how),
        }
    }

    /// The names in the directory, sorted.
    pub fn list(&self) -> io::Result<Vec<String>> {
        match &self.handle {
            Handle::Simulated(disk) => disk.list(),
            Handle::Real(disk) => disk.list(),
        }
    }

    /// Renames a file, replacing any that has the new name; durable after [`Disk::sync_dir`].
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to) = (file_name(from)?, file_name(to)?);
        match &self.handle {
            Handle::Simulated(disk) => disk.rename(from, to),
            Handle::Real(disk) => disk.rename(from, to),
        }
    }

    /// Removes a file's name; durable after [`Disk::sync_dir`].
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let name = file_name(name)?;
        match &self.handle {
            Handle::Simulated(disk) => disk.remove(name),
            Handle::Real(disk) => disk.remove(name),
        }
    }

    /// Makes names durable: what was made, renamed or removed before it.
    pub fn sync_dir(&self) -> io::Result<()> {
        match &self.handle {
            Handle::Simulated(disk) => disk.sync_dir(),
            Handle::Real(disk) => disk.sync_dir(),
        }
    }

    /// Operations that took effect: over all of a simulated disk's life, through this handle and its clones on a real one.
    pub(crate) fn operations(&self) -> u64 {
        match &self.handle {
            Handle::Simulated(disk) => disk.operations(),
            Handle::Real(disk) => disk.operations(),
        }
    }
}

impl File {
    /// Fills `into` from `offset`; an error of kind `UnexpectedEof` when the file ends before.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        match &self.handle {
            OpenFile::Simulated(file) => file.read_at(offset, into),
            OpenFile::Real(file) => file.read_at(offset, into),
        }
    }

    /// Writes all of `from` at `offset`, growing the file if needed.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        match &self.handle {
            OpenFile::Simulated(file) => file.write_at(offset, from),
            OpenFile::Real(file) => file.write_at(offset, from),
        }
    }

    /// The file's length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a length here is a fallible question to the disk")]
    pub fn len(&self) -> io::Result<u64> {
        match &self.handle {
            OpenFile::Simulated(file) => file.len(),
            OpenFile::Real(file) => file.len(),
        }
    }

    /// Cuts the file, or grows it with zeros.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        match &self.handle {
            OpenFile::Simulated(file) => file.set_len(len),
            OpenFile::Real(file) => file.set_len(len),
        }
    }

    /// Makes the file's content and length durable.
    pub fn sync(&self) -> io::Result<()> {
        match &self.handle {
            OpenFile::Simulated(file) => file.sync(),
            OpenFile::Real(file) => file.sync(),
        }
    }
}

/// Both disks take the same names, so that a store that runs on the one runs on the other.
fn file_name(name: &str) -> io::Result<&str> {
    if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name:?} is not a file name")));
    }
    Ok(name)
}
