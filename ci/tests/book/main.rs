//! The book in `docs/`, held to the code: its links lead somewhere, its commands are run and show what they say, its reference
//! names everything that goes by a name, and the code of its tutorial is compiled and played.
//!
//! How a page says what is to be done with a fenced block:
//!
//! - a ```` ```console ```` block is run: each line that begins with `$ ` by a shell, in a folder of the page's own, with
//!   `shakedown` on its path. A command exits with 0, unless `$ echo $?` and another code follow it. What is shown below a
//!   command is what it writes, line by line; `…` stands for any text within a line, and alone for any lines. A command with
//!   nothing below it may write anything;
//! - `<!-- not run: REASON -->` above a block: it is not run, and listed with the reason;
//! - `<!-- file: NAME -->` above a block: it is written into the page's folder, where commands after it find it;
//! - `<!-- edit: FILE, below: LINE -->` above a block: the tutorial has it put into that file, below the one line that reads so.
//!
//! `<!-- list: KIND -->` and `<!-- flags: COMMAND… -->` above a table say what it names in full; see `complete.rs`.
#![expect(clippy::disallowed_methods, reason = "the pages are read from the disk, and commands are given folders")]

mod commands;
mod complete;
mod links;
mod page;
mod tutorial;

// The tutorial's code names these as it does where a reader puts it.
use scenarios::{fact, scenario};
