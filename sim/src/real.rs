//! The real engine.

#![allow(unused_variables, clippy::todo)]

use crate::{
    Cancelled, Config, Datagram, Director, Disk, EngineError, LinkWeather, NodeId, NodeSpec, Observer, Played, Reach,
    Stream, Time, Unsupported,
};
use std::{
    future::Future,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

pub(crate) fn play(
    config: Config,
    cast: Vec<NodeSpec>,
    director: Director,
    observer: Observer,
) -> Result<Played, EngineError> {
    todo!()
}

/// What a [`World`](crate::World) holds: one incarnation of one node.
#[derive(Clone)]
pub(crate) struct Handle {}

/// What a [`Control`](crate::Control) holds.
#[derive(Clone)]
pub(crate) struct RealControl {}

/// What a [`Task`](crate::Task) holds.
pub(crate) struct RealTask<T> {
    _stub: PhantomData<fn() -> T>,
}

impl<T> RealTask<T> {
    pub(crate) fn cancel(&self) {
        todo!()
    }
}

impl<T> Future for RealTask<T> {
    type Output = Result<T, Cancelled>;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        todo!()
    }
}

impl Handle {
    pub(crate) fn node(&self) -> NodeId {
        todo!()
    }

    pub(crate) fn incarnation(&self) -> u32 {
        todo!()
    }

    pub(crate) fn now(&self) -> Time {
        todo!()
    }

    pub(crate) fn wall_ns(&self) -> u64 {
        todo!()
    }

    pub(crate) async fn sleep(&self, by: Duration) {
        todo!()
    }

    pub(crate) async fn charge(&self, ns: u64) {
        todo!()
    }

    pub(crate) fn send(&self, to: NodeId, frame: Vec<u8>) {
        todo!()
    }

    pub(crate) async fn recv(&self) -> Datagram {
        todo!()
    }

    pub(crate) fn disk(&self) -> Disk {
        todo!()
    }

    pub(crate) async fn offload<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        todo!()
    }

    pub(crate) fn spawn<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> RealTask<T> {
        todo!()
    }

    pub(crate) fn spawn_cancellable<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> RealTask<T> {
        todo!()
    }

    pub(crate) fn random(&self) -> u64 {
        todo!()
    }

    pub(crate) fn stream(&self, label: u64) -> Stream {
        todo!()
    }

    pub(crate) fn note(&self, kind: u16, data: &[u8]) {
        todo!()
    }
}

impl RealControl {
    pub(crate) fn now(&self) -> Time {
        todo!()
    }

    pub(crate) async fn sleep(&self, by: Duration) {
        todo!()
    }

    pub(crate) fn kill(&self, node: NodeId) -> Result<(), Unsupported> {
        todo!()
    }

    pub(crate) fn power_cut(&self, node: NodeId) -> Result<(), Unsupported> {
        todo!()
    }

    pub(crate) fn fell_at_disk_operation(&self, node: NodeId, nth: u64, power_cut: bool) -> Result<(), Unsupported> {
        todo!()
    }

    pub(crate) fn restart(&self, node: NodeId) -> Result<(), Unsupported> {
        todo!()
    }

    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        todo!()
    }

    pub(crate) fn pause(&self, node: NodeId) -> Result<(), Unsupported> {
        todo!()
    }

    pub(crate) fn resume(&self, node: NodeId) -> Result<(), Unsupported> {
        todo!()
    }

    pub(crate) fn step_wall(&self, node: NodeId, by_ns: i64) -> Result<(), Unsupported> {
        todo!()
    }

    pub(crate) fn set_drift(&self, node: NodeId, rate_ppm: u32) -> Result<(), Unsupported> {
        todo!()
    }

    pub(crate) fn set_weather(&self, reach: &Reach, weather: LinkWeather) -> Result<(), Unsupported> {
        todo!()
    }

    pub(crate) fn partition(&self, reach: &Reach) -> Result<(), Unsupported> {
        todo!()
    }

    pub(crate) fn mend(&self, reach: &Reach) -> Result<(), Unsupported> {
        todo!()
    }

    pub(crate) fn cancel(&self, node: NodeId, nth: u64) -> Result<(), Unsupported> {
        todo!()
    }

    pub(crate) fn heal(&self) -> Result<(), Unsupported> {
        todo!()
    }

    pub(crate) fn disk_image(&self, node: NodeId) -> Disk {
        todo!()
    }

    pub(crate) fn disk_operations(&self, node: NodeId) -> u64 {
        todo!()
    }

    pub(crate) fn note(&self, kind: u16, data: &[u8]) {
        todo!()
    }
}
