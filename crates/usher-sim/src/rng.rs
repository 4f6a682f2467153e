// SPDX-License-Identifier: GPL-2.0-only
//! Random numbers: small, fast, the same on every machine.
//!
//! The generator is xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number
//! generators", ACM TOMS 47(4), 2021), seeded through SplitMix64 as its authors advise. Streams for
//! different purposes come from [`Rng::stream`], so that drawing from one never shifts another.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

/// One step of SplitMix64: a bijection that scatters neighbouring inputs.
pub fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        let mut s = seed;
        let state = std::array::from_fn(|_| {
            let word = mix(s);
            s = s.wrapping_add(0x9e37_79b9_7f4a_7c15);
            word
        });
        Rng { state }
    }

    /// The stream of a seed for one purpose.
    pub fn stream(seed: u64, purpose: u64) -> Self {
        Rng::new(mix(seed) ^ mix(purpose.wrapping_mul(0xd6e8_feb8_6659_fd93)))
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let out = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// A number from 0 to before `n`; 0 if `n` is 0. (Multiply-shift: the bias is below n / 2^64.)
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    ///
    /// # Panics
    /// If `low > high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "random range {low}..={high} runs backwards");
        match (high - low).checked_add(1) {
            Some(n) => low + self.below(n),
            None => self.next_u64(),
        }
    }

    /// True `permille` times in a thousand.
    pub fn chance(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }

    /// An exponentially distributed number with this mean, in integer arithmetic (the same bits on
    /// every machine): `-ln(u)` to about nine digits.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        // ln(u) = ln(2) * log2(u). u is uniform in (0, 1] with 63 bits: u = m / 2^63.
        let m = (self.next_u64() >> 1) + 1;
        let log2 = log2_q32(m);
        let minus_log2 = (63u64 << 32) - log2; // -log2(u), 32 fraction bits
        const LN2_Q32: u128 = 2_977_044_472; // ln(2) * 2^32, rounded
        let minus_ln_q32 = (u128::from(minus_log2) * LN2_Q32) >> 32;
        ((minus_ln_q32 * u128::from(mean)) >> 32) as u64
    }
}

/// log2 of a number above 0 with 32 fraction bits, by repeated squaring (one bit per step).
fn log2_q32(x: u64) -> u64 {
    let whole = 63 - u64::from(x.leading_zeros());
    let mut y = x << x.leading_zeros(); // 1 <= y / 2^63 < 2
    let mut fraction = 0u64;
    for _ in 0..32 {
        let square = (u128::from(y) * u128::from(y)) >> 63;
        fraction <<= 1;
        if square >> 64 != 0 {
            fraction |= 1;
            y = (square >> 1) as u64;
        } else {
            y = square as u64;
        }
    }
    (whole << 32) | fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the generator is the published one.
    // Method: xoshiro256** by hand from the state {1, 2, 3, 4}: the first outputs follow from the
    // definition, rotl(s1 * 5, 7) * 9 = rotl(10, 7) * 9 = 11520, and then s1 = 0 gives 0.
    #[test]
    fn first_outputs_follow_from_the_definition() {
        let mut rng = Rng {
            state: [1, 2, 3, 4],
        };
        assert_eq!(rng.next_u64(), 11520);
        assert_eq!(rng.next_u64(), 0);
        assert_eq!(rng.next_u64(), 1_509_978_240);
    }

    // Goal: the integer logarithm is right.
    // Method: against f64 over many magnitudes.
    #[test]
    fn integer_log2_agrees_with_float() {
        for x in [
            1u64,
            2,
            3,
            5,
            1000,
            123_456_789,
            1 << 40,
            u64::MAX / 3,
            1 << 63,
        ] {
            let exact = (x as f64).log2();
            let ours = log2_q32(x) as f64 / (1u64 << 32) as f64;
            assert!((exact - ours).abs() < 1e-8, "{x}: {exact} {ours}");
        }
    }

    // Goal: draws have the distribution asked for.
    // Method: mean and tail of many draws; the seed is fixed, so this cannot flicker.
    #[test]
    fn draws_have_the_right_mean() {
        let mut rng = Rng::new(7);
        let n = 200_000;
        let sum: u64 = (0..n).map(|_| rng.exponential(1_000_000)).sum();
        let mean = sum / n;
        assert!(
            (990_000..1_010_000).contains(&mean),
            "exponential mean {mean}"
        );
        let below: u64 = (0..n).map(|_| rng.below(10)).sum();
        assert!(
            (440..460).contains(&(below * 100 / n)),
            "uniform mean {below}/{n}"
        );
        assert!((0..n)
            .map(|_| rng.range(3, 5))
            .all(|x| (3..=5).contains(&x)));
        let a = Rng::stream(1, 2).next_u64();
        assert_ne!(a, Rng::stream(2, 1).next_u64());
        assert_eq!(a, Rng::stream(1, 2).next_u64());
    }
}
