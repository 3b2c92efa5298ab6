//! The machine's own disk: one folder, its files by positioned reads and writes.
//!
//! A file sync is `fdatasync`, which keeps the length a reader needs; a directory sync is `fsync` of the folder.

use super::{Disk, File, Handle, Open, OpenFile};
use std::{
    fs, io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// A folder, and how many operations were made through this handle and its clones.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    operations: AtomicU64,
}

/// A real disk.
#[derive(Clone, Debug)]
pub(super) struct RealDisk {
    folder: Arc<Folder>,
}

/// A file of a real disk.
#[derive(Clone, Debug)]
pub(super) struct RealFile {
    folder: Arc<Folder>,
    file: Arc<fs::File>,
}

impl RealDisk {
    pub(super) fn at(path: &Path) -> io::Result<Disk> {
        fs::create_dir_all(path)?;
        let folder = Arc::new(Folder { path: path.to_owned(), operations: AtomicU64::new(0) });
        Ok(Disk { handle: Handle::Real(RealDisk { folder }) })
    }

    pub(super) fn operations(&self) -> u64 {
        self.folder.operations.load(Ordering::Relaxed)
    }

    pub(super) fn open(&self, name: &str, how: Open) -> io::Result<File> {
        let path = self.folder.counted().path.join(name);
        let file = fs::OpenOptions::new().read(true).write(true).create_new(how == Open::New).open(path)?;
        Ok(File { handle: OpenFile::Real(RealFile { folder: self.folder.clone(), file: Arc::new(file) }) })
    }

    pub(super) fn list(&self) -> io::Result<Vec<String>> {
        let mut names = fs::read_dir(&self.folder.counted().path)?
            .map(|entry| {
                entry?.file_name().into_string().map_err(|name| {
                    io::Error::new(io::ErrorKind::InvalidData, format!("the file name {name:?} is not UTF-8"))
                })
            })
            .collect::<io::Result<Vec<String>>>()?;
        names.sort_unstable();
        Ok(names)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the real disk")]
    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let path = &self.folder.counted().path;
        fs::rename(path.join(from), path.join(to))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the real disk")]
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.folder.counted().path.join(name))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the real disk")]
    pub(super) fn sync_dir(&self) -> io::Result<()> {
        fs::File::open(&self.folder.counted().path)?.sync_all()
    }
}

impl RealFile {
    pub(super) fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.folder.counted();
        self.file.read_exact_at(into, offset)
    }

    pub(super) fn write_at(&self, offset: u64, from: &[u8]) -> io::Result<()> {
        self.folder.counted();
        self.file.write_all_at(from, offset)
    }

    pub(super) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        self.folder.counted();
        self.file.set_len(len)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.folder.counted();
        self.file.sync_data()
    }
}

impl Folder {
    fn counted(&self) -> &Folder {
        self.operations.fetch_add(1, Ordering::Relaxed);
        self
    }
}
