//! A typed ordered map that remembers which rows changed since the last checkpoint.
