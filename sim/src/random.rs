//! Keyed streams: one ChaCha8 stream an entity, so that nobody's draws shift anybody else's.
//!
//! The engines key their own streams by paths that begin with one of the words in [`domain`], which were picked at
//! random: a path made of small numbers cannot meet one.

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{RngCore, SeedableRng},
};

/// Hashed ahead of every path: it sets these streams apart from whatever else is hashed from the same seed.
const CONTEXT: &[u8] = b"shakedown stream v1";

/// The first word of the paths that the engines key their own streams by.
pub(crate) mod domain {
    /// `[LINK, from, to]`: what happens to frames on an ordered link.
    pub(crate) const LINK: u64 = 0x9ae1_6a3b_2f90_404f;
    /// `[NODE, node, incarnation]`: the draws of [`World::random`](crate::World::random).
    pub(crate) const NODE: u64 = 0xc949_d7c7_509e_6557;
    /// `[ENTITY, node, incarnation, label]`: the streams of [`World::stream`](crate::World::stream).
    pub(crate) const ENTITY: u64 = 0xff51_afd7_ed55_8ccd;
    /// `[POWER, node, incarnation]`: what a power cut leaves on a disk.
    pub(crate) const POWER: u64 = 0xb492_b66f_be98_f273;
}

/// A ChaCha8 stream keyed by a seed and a path of labels.
///
/// A run has a handful of them for each agent, and most of them rest most of the time. So a stream keeps few words ahead: 104 bytes
/// where the generator itself is 320. A word costs 10 ns for that, where it would cost 2.
#[derive(Clone, Debug)]
pub struct Stream {
    key: [u8; 32],
    /// Words drawn so far.
    drawn: u64,
    /// The words that begin at the last multiple of as many.
    ahead: [u64; AHEAD],
}

/// How many words are made at a time.
const AHEAD: usize = 8;

impl Stream {
    /// The stream of one entity: the same seed and path give the same draws, and different paths unrelated ones.
    pub fn keyed(seed: u64, path: &[u64]) -> Stream {
        let mut hasher = blake3::Hasher::new();
        hasher.update(CONTEXT).update(&seed.to_le_bytes());
        for label in path {
            hasher.update(&label.to_le_bytes());
        }
        Stream { key: *hasher.finalize().as_bytes(), drawn: 0, ahead: [0; AHEAD] }
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let at = self.drawn as usize % AHEAD;
        if at == 0 {
            self.make_ahead();
        }
        self.drawn += 1;
        self.ahead[at]
    }

    #[inline(never)]
    fn make_ahead(&mut self) {
        let mut words = ChaCha8Rng::from_seed(self.key);
        words.set_word_pos(u128::from(self.drawn) * 2); // in words of 32 bits
        self.ahead = std::array::from_fn(|_| words.next_u64());
    }

    /// A draw from `0..bound` by one word, multiply and shift (its bias is below `bound / 2^64`); `bound` is at least 1.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound >= 1, "nothing can be drawn from an empty range");
        scaled(self.next_u64(), bound)
    }

    /// A draw from `low..=high`.
    #[inline]
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "nothing can be drawn between {low} and {high}");
        let word = self.next_u64();
        match (high - low).checked_add(1) {
            Some(bound) => low + scaled(word, bound),
            None => word,
        }
    }

    /// True in `ppm` of a million draws.
    #[inline]
    pub fn chance_ppm(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }
}

/// `word`, taken as a fraction of 2^64, of `bound`.
#[inline]
fn scaled(word: u64, bound: u64) -> u64 {
    ((u128::from(word) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::{AHEAD, ChaCha8Rng, Stream};
    use proptest::prelude::*;
    use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

    fn draws(seed: u64, path: &[u64]) -> [u64; 4] {
        let mut stream = Stream::keyed(seed, path);
        [(); 4].map(|()| stream.next_u64())
    }

    proptest! {
        #[test]
        fn a_key_is_its_seed_and_its_whole_path(
            one in (0u64..3, prop::collection::vec(0u64..3, 0..4)),
            other in (0u64..3, prop::collection::vec(0u64..3, 0..4)),
        ) {
            prop_assert_eq!(draws(one.0, &one.1) == draws(other.0, &other.1), one == other);
        }

        #[test]
        fn draws_stay_in_their_range_and_take_one_word(seed: u64, low: u64, high: u64, bound in 1u64.., ppm in 0u32..2_000_000) {
            let (low, high) = (low.min(high), low.max(high));
            let mut stream = Stream::keyed(seed, &[1]);
            prop_assert!(stream.below(bound) < bound);
            prop_assert!((low..=high).contains(&stream.between(low, high)));
            stream.chance_ppm(ppm);
            prop_assert_eq!(stream.next_u64(), draws(seed, &[1])[3]);
        }
    }

    #[test]
    fn chances_are_met_and_the_ends_are_certain() {
        let mut stream = Stream::keyed(1, &[]);
        let mut hits = |ppm| (0..100_000).filter(|_| stream.chance_ppm(ppm)).count();
        assert_eq!((hits(0), hits(1_000_000)), (0, 100_000));
        assert!((24_500..25_500).contains(&hits(250_000)));
    }

    #[test]
    fn every_value_of_a_small_range_is_drawn() {
        let mut stream = Stream::keyed(2, &[]);
        let mut counts = [0u32; 6];
        (0..60_000).for_each(|_| counts[stream.between(10, 15) as usize - 10] += 1);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_stream_is_its_generators_whatever_it_keeps_ahead() {
        let mut stream = Stream::keyed(3, &[1]);
        let mut words = ChaCha8Rng::from_seed(stream.key);
        for word in 0..4 * AHEAD {
            assert_eq!(stream.next_u64(), words.next_u64(), "word {word}");
        }
    }

    /// Saved failures replay only as long as these words stay what they are.
    #[test]
    fn the_words_of_a_key_are_for_ever() {
        let words = [
            9_597_387_055_150_051_382,
            6_764_137_668_730_497_228,
            11_426_467_096_564_835_655,
            10_137_583_188_734_187_683,
        ];
        assert_eq!(draws(42, &[1, 2, 3]), words);
    }
}
