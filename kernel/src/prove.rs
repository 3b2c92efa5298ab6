//! Can it be shown? Every table rebuilt from the log, hash-equal, table by table.
