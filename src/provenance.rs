//! Where a result comes from: the commit that the binary was built from and whether its sources were as committed there, the
//! binary, the machine, the command.
#![expect(clippy::disallowed_methods, reason = "the machine is asked what it is, and the binary read to be hashed")]

use scenarios::runner::Provenance;
use std::{env, fs};

/// What is said of a commit that cannot be learned.
const UNKNOWN: &str = "unknown";

/// What this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The commit it was built from, or [`UNKNOWN`].
    pub commit: String,
    /// Whether the sources that went into it had changes that the commit has not; also if that is not known.
    pub dirty: bool,
    /// blake3 of the binary, in hexadecimal.
    pub binary: String,
}

impl Origin {
    /// What `build.rs` stamped this binary with, and the binary's hash. The sources are not asked: they may be others by now.
    pub fn find() -> Origin {
        let bytes = env::current_exe().and_then(fs::read);
        let binary = bytes.map_or_else(|_| UNKNOWN.to_owned(), |bytes| blake3::hash(&bytes).to_hex().to_string());
        let commit = env!("SHAKEDOWN_COMMIT").to_owned();
        Origin { commit, dirty: env!("SHAKEDOWN_DIRTY") != "false", binary }
    }
}

impl Origin {
    /// The same as a run's folder states it.
    pub fn provenance(&self) -> Provenance {
        let commit = if self.commit == UNKNOWN { String::new() } else { self.commit.clone() };
        Provenance { commit, dirty: self.dirty, binary_hash: self.binary.clone() }
    }
}

/// blake3 of what the machine says it is: system, architecture, cores and the model of its processor.
pub fn machine() -> String {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors.lines().find(|line| line.starts_with("model name")).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let text = format!("{}\n{}\n{cores}\n{model}\n", env::consts::OS, env::consts::ARCH);
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

/// blake3 of `Cargo.lock` as it was when this binary was built.
pub fn lock() -> String {
    blake3::hash(include_bytes!("../Cargo.lock")).to_hex().to_string()
}

/// The command that does `arguments` as this process was started: by cargo, or by its own path.
pub fn command<'a>(arguments: impl IntoIterator<Item = &'a str>) -> String {
    let by_cargo = env::var_os("CARGO").is_some() && env::var_os("CARGO_MANIFEST_DIR").is_some();
    let mut command = match (by_cargo, cfg!(debug_assertions)) {
        (true, false) => "cargo run --release --".to_owned(),
        (true, true) => "cargo run --".to_owned(),
        (false, _) => quoted(&env::args().next().unwrap_or_else(|| "shakedown".to_owned())),
    };
    for argument in arguments {
        command.push(' ');
        command.push_str(&quoted(argument));
    }
    command
}

/// An argument as a POSIX shell takes it.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn arguments_survive_a_shell() {
        for (argument, expect) in
            [("--seed", "--seed"), ("my plan.toml", "'my plan.toml'"), ("it's", r"'it'\''s'"), ("", "''")]
        {
            assert_eq!(quoted(argument), expect);
        }
    }
}
