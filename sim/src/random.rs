//! Keyed streams: one ChaCha8 stream an entity, so that nobody's draws shift anybody else's.

/// A ChaCha8 stream keyed by a seed and a path of labels.
#[derive(Clone, Debug)]
pub struct Stream {}

impl Stream {
    /// The stream of one entity: the same seed and path give the same draws, and different paths unrelated ones.
    pub fn keyed(seed: u64, path: &[u64]) -> Stream {
        let _ = (seed, path);
        todo!()
    }
    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        todo!()
    }
    /// A draw from `0..bound` by one word, multiply and shift (its bias is below `bound / 2^64`); `bound` is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        let _ = bound;
        todo!()
    }
    /// A draw from `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let _ = (low, high);
        todo!()
    }
    /// True in `ppm` of a million draws.
    pub fn chance_ppm(&mut self, ppm: u32) -> bool {
        let _ = ppm;
        todo!()
    }
}
