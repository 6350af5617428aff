use proptest::prelude::*;

use super::*;

#[test]
fn a_bucket_without_a_rate_is_never_empty() {
    let (mut bottomless, mut small) = (Bucket::full(None), Bucket::full(RefillRate::new(2)));
    assert!((0..1_000).all(|_| bottomless.try_take(0)));
    assert_eq!([0, 0, 0, 500_000].map(|now_us| small.try_take(now_us)), [true, true, false, true]);
}

fn taken(rate: RefillRate, full_at_ns: &mut u64, now_us: u64) -> bool {
    let then_ns = rate.take(*full_at_ns, now_us);
    *full_at_ns = then_ns.unwrap_or(*full_at_ns);
    then_ns.is_some()
}

#[test]
fn a_burst_is_limited_to_the_rate_of_a_second() {
    let (rate, mut full_at_ns) = (RefillRate::new(50).expect("a rate"), 0);
    let now_us = 7_000_000;
    assert!((0..50).all(|_| taken(rate, &mut full_at_ns, now_us)));
    assert!(!taken(rate, &mut full_at_ns, now_us));
    assert!(!taken(rate, &mut full_at_ns, now_us + 19_999), "a token is refilled after 20 ms");
    assert!(taken(rate, &mut full_at_ns, now_us + 20_000));
    assert!(!taken(rate, &mut full_at_ns, now_us + 20_000));
}

#[test]
fn a_rate_of_0_is_unlimited_and_a_small_share_is_enforced() {
    assert_eq!(RefillRate::new(0), None);
    assert_eq!(RefillRate::share(0, 4), None);
    let (rate, mut full_at_ns) = (RefillRate::share(1, 4).expect("a rate"), 0);
    assert!(taken(rate, &mut full_at_ns, 0) && !taken(rate, &mut full_at_ns, 3_999_999));
    assert!(taken(rate, &mut full_at_ns, 4_000_000));
}

/// The textbook token bucket: a number of tokens, refilled by time.
struct Drawn {
    holds_ns: u64,
    at_us: u64,
}

impl Drawn {
    fn try_take(&mut self, rate: RefillRate, now_us: u64) -> bool {
        let come_ns = (now_us - self.at_us) * 1_000;
        self.holds_ns = (self.holds_ns + come_ns).min(rate.all_ns);
        self.at_us = now_us;
        let left_ns = self.holds_ns.checked_sub(rate.interval_ns);
        self.holds_ns = left_ns.unwrap_or(self.holds_ns);
        left_ns.is_some()
    }
}

proptest! {
    #[test]
    fn the_pace_matches_a_token_bucket(
        per_second in 1_u32..5_000,
        shares in 1_u16..9,
        pauses_us in prop::collection::vec(prop_oneof![Just(0), 0_u64..2_000, 0_u64..2_000_000], 1..400),
    ) {
        let rate = RefillRate::share(per_second, shares).expect("a rate");
        let (mut full_at_ns, mut now_us) = (0, 5_000_000);
        let mut drawn = Drawn { holds_ns: rate.all_ns, at_us: now_us };
        for pause_us in pauses_us {
            now_us += pause_us;
            prop_assert_eq!(taken(rate, &mut full_at_ns, now_us), drawn.try_take(rate, now_us));
        }
    }

    #[test]
    fn any_second_admits_at_most_twice_the_rate(per_second in 1_u32..300, pauses_us in prop::collection::vec(0_u64..9_000, 600)) {
        let rate = RefillRate::new(per_second).expect("a rate");
        let (mut full_at_ns, mut now_us, mut times_us) = (0, 0, Vec::new());
        for pause_us in pauses_us {
            now_us += pause_us;
            if taken(rate, &mut full_at_ns, now_us) {
                times_us.push(now_us);
            }
        }
        for (first, from_us) in times_us.iter().enumerate() {
            let within = times_us[first..].iter().take_while(|at_us| **at_us < from_us + 1_000_000).count();
            prop_assert!(within <= 2 * per_second as usize, "{within} in a second at {per_second}/s");
        }
    }
}
