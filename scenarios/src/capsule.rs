//! A run as a file: everything needed to play it again, and what came of it.
