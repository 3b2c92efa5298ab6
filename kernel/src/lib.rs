//! The ledger under test: a pure state machine of rooms, its store port, its server and its client.
//!
//! A command walks the rooms in one order, and each room owns its commands, events, tables, `decide` and `apply`:
//!
//! | room | the question it answers |
//! |---|---|
//! | [`admit`] | may it come in? quotas of users, the owner's halt switch |
//! | [`lease`] | who may write? run leases with fences, the owner's lock |
//! | [`effect`] | has it happened already? request deduplication, write-ahead intents, memo and single-flight |
//! | [`reserve`] | is there enough? **budgets are checked here**: caps at four levels, live slots, prices |
//! | [`run`] | where does work stand? runs and attempts |
//! | [`record`] | what happened? events, sequence, hash chain, codec |
//! | [`prove`] | can it be shown? rebuild of every table from the log |
//!
//! [`room`] holds what they share and [`table`] what they keep. Beside them: [`ledger`] is the single writer, [`store`] the port it writes through, [`serve`] and [`client`] its two
//! ends on a bus.
//!
//! What is deliberately not here: only `serve`, `client` and `store` touch [`sim`]; every other file is pure, with no I/O,
//! no clock, no thread, no randomness and no async. The edge limiter and the provider key's own credit limit are nodes of
//! the cast, outside the kernel on purpose.

pub mod admit;
pub mod client;
pub mod effect;
pub mod id;
pub mod lease;
pub mod ledger;
pub mod money;
pub mod planted;
pub mod prove;
pub mod record;
pub mod request;
pub mod reserve;
pub mod room;
pub mod run;
pub mod serve;
pub mod store;
pub mod table;
