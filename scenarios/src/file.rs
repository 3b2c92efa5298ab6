//! Files of the machine: read within a limit, and published whole.
//!
//! A file is published by writing it beside its place and renaming it there, so that whoever finds it finds all of it. A link is
//! followed: what it leads to is replaced. What is no regular file (a pipe, a terminal, a device) is written through, plain. A
//! new file has the mode that the umask gives; one that is replaced keeps its own.
//!
//! What is deliberately not here: no format, and nothing that is done while a run is played.
#![expect(clippy::disallowed_methods, reason = "these files are on the machine's disk, before a run or after it")]

use std::{
    ffi::OsString,
    fs,
    io::{self, ErrorKind, Read as _, Write as _},
    path::{Path, PathBuf},
};

/// The longest file that is read whole from what a user names: plan, trace, capsule.
pub const MOST_BYTES: u64 = 256 << 20;

/// More links than this after one another lead nowhere.
const MOST_LINKS: usize = 40;

/// Names that are tried for a file beside its place, in case earlier ones were left behind.
const MOST_LEFT: u32 = 1_000;

/// Something cannot be written where it was asked for.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be written: {source}; give {}", path.display(), remedy(source.kind()))]
pub struct Unpublished {
    /// The path as it was given.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// What to give instead of a place that cannot be written, after what the system said of it.
pub fn remedy(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "a place where you may write",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => "a place on a disk with room",
        ErrorKind::NotFound => "a place in a folder that exists",
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
            "a place with nothing but folders above it: a file, or a link that leads nowhere, is in the way"
        }
        ErrorKind::DirectoryNotEmpty => "a new or empty folder",
        ErrorKind::IsADirectory => "a file and not a folder",
        _ => "another place",
    }
}

/// Reads a file that the user named, of at most `most` bytes. A pipe will do.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(ErrorKind::FileTooLarge, format!("it is longer than {most} bytes")));
    }
    Ok(bytes)
}

/// The same as text.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let text = String::from_utf8(read(path, most)?);
    text.map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(ErrorKind::InvalidData, format!("it is not UTF-8 from byte {at} on"))
    })
}

/// Publishes a file, replacing what was there.
pub fn publish(path: &Path, bytes: &[u8]) -> Result<(), Unpublished> {
    let published = match place(path) {
        Ok(Place::Through) => through(path, bytes),
        Ok(Place::Regular(place)) => replace(&place, bytes),
        Err(error) => Err(error),
    };
    published.map_err(|source| Unpublished { path: path.to_owned(), source })
}

/// Whether a file can be published at `path`, found out by beginning one; leaves nothing behind.
pub fn probe(path: &Path) -> Result<(), Unpublished> {
    let probed = match place(path) {
        Ok(Place::Through) => Ok(()), // to open a pipe would wait for its reader
        Ok(Place::Regular(place)) => match begin(&place) {
            Ok((partial, _)) => fs::remove_file(partial),
            Err(error) if must_be_written_in_place(&error, &place) => {
                fs::OpenOptions::new().write(true).open(&place).map(|_| ())
            }
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    probed.map_err(|source| Unpublished { path: path.to_owned(), source })
}

/// The folder that `path` is in.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A name beside `path`, on the same file system, that no other process writes.
pub(crate) fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "it has no name of its own"))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.partial", std::process::id()));
    Ok(path.with_file_name(hidden))
}

/// Where the bytes of a file go.
enum Place {
    /// Into what is there and is no regular file.
    Through,
    /// Into a regular file, there or not, that no link stands for.
    Regular(PathBuf),
}

fn place(path: &Path) -> io::Result<Place> {
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        Ok(there) if !there.is_file() => return Ok(Place::Through),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(_) | Err(_) => {}
    }
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let folder = fs::canonicalize(folder_of(&path))?;
        if folder.starts_with("/proc") {
            return Ok(Place::Through); // what a process has open goes by a link that stands for no path
        }
        let name = path.file_name().ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "it names no file"))?;
        let there = folder.join(name);
        match fs::read_link(&there) {
            Ok(leads_to) => path = folder.join(leads_to),
            Err(_) => return Ok(Place::Regular(there)),
        }
    }
    Err(io::Error::new(ErrorKind::InvalidInput, "it is a link to a link, without end"))
}

fn through(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.write_all(bytes)
}

fn replace(place: &Path, bytes: &[u8]) -> io::Result<()> {
    let (partial, mut file) = match begin(place) {
        Err(error) if must_be_written_in_place(&error, place) => return fs::write(place, bytes),
        begun => begun?,
    };
    let written = file
        .write_all(bytes)
        .and_then(|()| fs::metadata(place).map_or(Ok(()), |there| file.set_permissions(there.permissions())))
        .and_then(|()| file.sync_all());
    let published = written.and_then(|()| fs::rename(&partial, place));
    if published.is_err() {
        let _ = fs::remove_file(&partial);
    }
    match published {
        Err(error) if must_be_written_in_place(&error, place) => fs::write(place, bytes),
        published => published,
    }
}

/// A file that is there may be writable where its folder is not, or be a place that something is mounted on.
fn must_be_written_in_place(error: &io::Error, place: &Path) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ResourceBusy) && place.is_file()
}

/// A new file beside `place`.
fn begin(place: &Path) -> io::Result<(PathBuf, fs::File)> {
    let folder = folder_of(place);
    for left in 0..MOST_LEFT {
        let partial = folder.join(format!(".shakedown-{}-{left}.partial", std::process::id()));
        match fs::OpenOptions::new().write(true).create_new(true).open(&partial) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            begun => return begun.map(|file| (partial, file)),
        }
    }
    Err(io::Error::other(format!("files called .shakedown-*.partial fill {}; remove them", folder.display())))
}

#[cfg(test)]
mod tests {
    use super::{ErrorKind, Unpublished, probe, publish, read};
    use std::fs;

    #[test]
    fn what_the_system_says_decides_what_to_give_instead() {
        for (kind, says) in [
            (ErrorKind::PermissionDenied, "where you may write"),
            (ErrorKind::ReadOnlyFilesystem, "where you may write"),
            (ErrorKind::StorageFull, "on a disk with room"),
            (ErrorKind::NotFound, "in a folder that exists"),
            (ErrorKind::NotADirectory, "nothing but folders above"),
            (ErrorKind::DirectoryNotEmpty, "a new or empty folder"),
            (ErrorKind::IsADirectory, "a file and not a folder"),
            (ErrorKind::TimedOut, "another place"),
        ] {
            let said = Unpublished { path: "kept".into(), source: kind.into() }.to_string();
            assert!(said.starts_with("kept cannot be written: ") && said.contains(says), "{said}");
        }
    }

    #[test]
    fn a_file_is_replaced_whole_and_what_was_left_behind_is_no_hindrance() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("one.txt");
        let left = folder.path().join(format!(".shakedown-{}-0.partial", std::process::id()));
        fs::write(&left, "left by another").expect("written");
        probe(&path).expect("there is room");
        assert!(!path.exists());
        for text in ["longer than the next", "next"] {
            publish(&path, text.as_bytes()).expect("published");
            assert_eq!(fs::read_to_string(&path).expect("there"), text);
        }
        assert_eq!(fs::read_to_string(&left).expect("left alone"), "left by another");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing else is left");
        assert!(read(&path, 3).is_err_and(|error| error.kind() == ErrorKind::FileTooLarge));
        assert_eq!(read(&path, 4).expect("just short enough"), b"next");
    }

    #[test]
    fn links_without_end_and_folders_are_refused_by_the_name_that_was_given() {
        let folder = tempfile::tempdir().expect("a folder");
        let round = folder.path().join("round");
        #[cfg(unix)]
        std::os::unix::fs::symlink("round", &round).expect("a link");
        for path in [&round, folder.path(), &folder.path().join("nowhere/one.txt")] {
            for refused in [probe(path), publish(path, b"")] {
                let said = refused.expect_err("no file can be there").to_string();
                assert!(said.starts_with(&format!("{} cannot be written: ", path.display())), "{said}");
                assert!(!said.contains("partial"), "{said}");
            }
        }
    }
}
