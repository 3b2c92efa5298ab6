//! Keeps a drawn plan within what the system promises to survive.
