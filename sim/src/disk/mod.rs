//! A directory of files, enough for a database's storage port; simulated or real.

mod simulated;

pub(crate) use simulated::{Felled, Offloaded, SimDisk};

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
#[derive(Clone)]
pub struct Disk {}

/// An open file of a [`Disk`].
#[derive(Clone, Debug)]
pub struct File {}

impl Disk {
    /// A real directory, made if absent.
    pub fn at(path: &std::path::Path) -> io::Result<Disk> {
        let _ = path;
        todo!()
    }
    /// Opens a file for reading and writing.
    pub fn open(&self, name: &str, how: Open) -> io::Result<File> {
        let _ = (name, how);
        todo!()
    }
    /// The names in the directory, sorted.
    pub fn list(&self) -> io::Result<Vec<String>> {
        todo!()
    }
    /// Renames a file, replacing any that has the new name; durable after [`Disk::sync_dir`].
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let _ = (from, to);
        todo!()
    }
    /// Removes a file's name; durable after [`Disk::sync_dir`].
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let _ = name;
        todo!()
    }
    /// Makes names durable: what was made, renamed or removed before it.
    pub fn sync_dir(&self) -> io::Result<()> {
        todo!()
    }
}

impl File {
    /// Fills `into` from `offset`; an error of kind `UnexpectedEof` when the file ends before.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let _ = (offset, into);
        todo!()
    }
    /// Writes all of `from` at `offset`, growing the file if needed.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        let _ = (offset, from);
        todo!()
    }
    /// The file's length in bytes.
    pub fn len(&self) -> io::Result<u64> {
        todo!()
    }
    /// Cuts the file, or grows it with zeros.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        let _ = len;
        todo!()
    }
    /// Makes the file's content and length durable.
    pub fn sync(&self) -> io::Result<()> {
        todo!()
    }
}
