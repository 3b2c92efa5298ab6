//! What the parts of shakedown cost on this machine.
//!
//! - [`operation`]: a thing that is done over and over, prepared apart from doing it.
//! - [`engine`], [`commands`], [`log`], [`watching`]: the operations: the engine's calls, the ledger's commands, the log's codec
//!   and chain, and the invariants and the model.
//!
//! `cargo bench -p bench` times them; `cargo run --release -p bench --example instructions` counts their instructions.
//!
//! What is deliberately not here: no clock is read and nothing is printed; the bench and the example do. No operation is a
//! record of the table: what one thread does in a loop is no figure of a ledger under load.

pub mod commands;
pub mod engine;
pub mod log;
pub mod operation;
pub mod watching;

use operation::Operation;

/// A group of operations: the first part of their names, and how they come about.
pub type Group = (&'static str, fn() -> Vec<Operation>);

/// The groups.
pub const GROUPS: [Group; 4] = [
    ("engine", engine::operations),
    ("commit", commands::operations),
    ("log", log::operations),
    ("watch", watching::operations),
];

/// Every operation, group by group.
pub fn all() -> Vec<Operation> {
    GROUPS.iter().flat_map(|(_, operations)| operations()).collect()
}

/// The operation of that name, preparing no other group.
pub fn named(name: &str) -> Option<Operation> {
    let (group, _) = name.split_once('/')?;
    let (_, operations) = GROUPS.iter().find(|(known, _)| *known == group)?;
    operations().into_iter().find(|operation| operation.name == name)
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_operation_can_be_done_as_often_as_it_says_and_is_found_by_its_name() {
        for operation in super::all() {
            let times = if operation.elements > 1 { 2 } else { operation.most };
            let mut doing = operation.prepare();
            (0..times).for_each(|_| doing());
            assert_eq!(super::named(&operation.name).map(|found| found.elements), Some(operation.elements));
        }
    }
}
