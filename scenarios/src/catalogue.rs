//! The scenarios that ship with shakedown, and a user's own by path.
