//! A disk in memory whose operations take virtual time.

#![allow(unused_variables, dead_code, clippy::todo)]

use crate::{Disk, DiskSpec, Stream};

/// One node's simulated disk. It outlives the node's incarnations.
#[derive(Clone)]
pub(crate) struct SimDisk {}

/// What an offloaded closure did to the disk.
pub(crate) struct Offloaded {
    /// When the last operation ends, in true time.
    pub(crate) finish_ns: u64,
    /// An armed operation was reached.
    pub(crate) felled: Option<Felled>,
}

/// The node dies at one of its disk operations.
#[derive(Clone, Copy)]
pub(crate) struct Felled {
    /// When, in true time.
    pub(crate) at_ns: u64,
    /// Whether what was not synced is lost as well.
    pub(crate) power_cut: bool,
}

impl SimDisk {
    pub(crate) fn new(spec: DiskSpec) -> SimDisk {
        todo!()
    }
    pub(crate) fn disk(&self) -> Disk {
        todo!()
    }
    pub(crate) fn begin_offload(&self, now_ns: u64) {
        todo!()
    }
    pub(crate) fn end_offload(&self) -> Offloaded {
        todo!()
    }
    pub(crate) fn arm_fell(&self, nth: u64, power_cut: bool) {
        todo!()
    }
    pub(crate) fn disarm(&self) {
        todo!()
    }
    pub(crate) fn kill(&self, now_ns: u64) {
        todo!()
    }
    pub(crate) fn power_cut(&self, now_ns: u64, draws: &mut Stream) {
        todo!()
    }
    pub(crate) fn image(&self) -> Disk {
        todo!()
    }
    pub(crate) fn operations(&self) -> u64 {
        todo!()
    }
}
