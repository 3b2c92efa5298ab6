//! The command from outside.
