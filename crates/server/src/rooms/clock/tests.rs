use super::*;

const MS: u64 = 1_000_000;
/// 60 ticks per second.
const STEP_NS: u64 = 16_666_666;

fn permille(rate: u32) -> ClockRate {
    ClockRate::from_permille(rate).expect("a rate")
}

fn dilating(rate_min: u32) -> Clock {
    Clock::new(STEP_NS, OverrunPolicy::Dilate { rate_min: permille(rate_min) })
}

/// The rates after each of `ticks` ticks of a duration that depends on the tick.
fn rates(clock: &mut Clock, ticks: u64, took_ns: impl Fn(u64) -> u64) -> Vec<u16> {
    let after = |tick| {
        clock.observe(took_ns(tick), SHARE_MAX_PPM);
        clock.rate().permille()
    };
    (0..ticks).map(after).collect()
}

#[test]
fn the_rate_fits_the_load() {
    // A load, and the rate at which ticks take nine tenths of the interval.
    let table = [
        (1, 1_000),
        (14, 1_000),
        // Longer than the share, and less than the interval by a twentieth.
        (15, 1_000),
        (16, 938),
        (17, 882),
        (25, 600),
        (50, 300),
        (100, 150),
        (150, 100),
        // Below the minimum.
        (170, 100),
        (1_000, 100),
    ];
    for (took_ms, rate) in table {
        let mut clock = dilating(100);
        let seen = rates(&mut clock, 200, |_| took_ms * MS);
        // Or a higher rate at which they take no longer than 19 twentieths.
        assert!((rate - 1..=rate * 19 / 18 + 1).contains(&seen[199]), "{took_ms} ms: {}", seen[199]);
        assert_eq!(seen[99..], [seen[199]; 101], "{took_ms} ms: the rate does not oscillate");
        assert!(seen.is_sorted_by(|one, next| one >= next), "{took_ms} ms: {seen:?}");
        assert_eq!(clock.interval_ns(), STEP_NS * 1_000 / u64::from(seen[199]));
    }
}

#[test]
fn the_rate_falls_within_a_few_ticks() {
    let mut clock = dilating(100);
    rates(&mut clock, 100, |_| MS);
    // One long tick may be chance, two are not.
    let seen = rates(&mut clock, 6, |_| 50 * MS);
    assert!(seen[0] == 1_000 && seen[1] < 700 && seen[5] < 350, "{seen:?}");
}

#[test]
fn one_long_tick_changes_nothing() {
    let mut clock = dilating(100);
    let seen = rates(&mut clock, 1_000, |tick| if tick % 50 == 0 { 500 * MS } else { MS });
    assert_eq!(seen, [1_000; 1_000]);
}

#[test]
fn the_rate_recovers_slowly_and_evenly() {
    let mut clock = dilating(100);
    rates(&mut clock, 200, |_| 200 * MS);
    assert_eq!(clock.rate(), permille(100));
    let (mut before, mut passed_ns) = (100, 0);
    while !clock.rate().is_full() {
        passed_ns += clock.interval_ns();
        assert!(!clock.observe(MS, SHARE_MAX_PPM));
        let now = clock.rate().permille();
        assert!((before..=before + 17).contains(&now), "{now} after {before}");
        before = now;
    }
    // A thousandth each 10 ms, after the smoothed load has fallen.
    assert!((9_000 * MS..12_000 * MS).contains(&passed_ns), "{passed_ns} ns");
}

#[test]
fn the_rate_of_few_ticks_per_second_rises_evenly() {
    let mut clock = Clock::new(1_000 * MS, OverrunPolicy::Dilate { rate_min: permille(100) });
    rates(&mut clock, 50, |_| 20_000 * MS);
    assert_eq!(clock.rate(), permille(100));
    let seen = rates(&mut clock, 100, |_| MS);
    assert!(seen.windows(2).all(|pair| pair[1] - pair[0] <= 50), "{seen:?}");
    assert_eq!(seen[99], 1_000);
}

#[test]
fn a_noisy_load_keeps_a_steady_rate() {
    let mut clock = dilating(100);
    let noisy = |tick: u64| (45 + tick * 7 % 11) * MS;
    rates(&mut clock, 200, noisy);
    let seen = rates(&mut clock, 1_000, noisy);
    let (least, most) = (seen.iter().min().expect("rates"), seen.iter().max().expect("rates"));
    assert!(*least >= 280 && *most <= 320, "{least} to {most}");
}

#[test]
fn without_dilation_the_rate_stays_full() {
    let mut clock = Clock::new(STEP_NS, OverrunPolicy::Skip);
    assert_eq!(rates(&mut clock, 100, |_| 500 * MS), [1_000; 100]);
    assert_eq!(clock.interval_ns(), STEP_NS);
    let full_ppm = u32::try_from(500 * MS * 1_000_000 / STEP_NS).expect("32 bits");
    assert_eq!(clock.demand(), Demand { full_ppm, least_ppm: full_ppm }, "its rate does not fall");
}

#[test]
fn the_lowest_rate_is_the_option() {
    for rate_min in [1, 100, 250, 1_000] {
        let seen = rates(&mut dilating(rate_min), 200, |_| 100_000 * MS);
        assert_eq!(u32::from(seen[199]), rate_min);
    }
}

#[test]
fn extreme_durations_are_no_overflow() {
    let mut clock = Clock::new(1_000 * MS, OverrunPolicy::Dilate { rate_min: permille(1) });
    for took_ns in [u64::MAX, u64::MAX, u64::MAX, 0, 0, 0] {
        clock.observe(took_ns, SHARE_MAX_PPM);
        clock.observe(took_ns, 1);
    }
    assert!(clock.interval_ns() >= 1_000 * MS);
}

/// Rooms with these demands, whose rate may fall to nearly nothing.
fn dilating_freely(demands: &[u32]) -> Vec<Demand> {
    demands.iter().map(|full_ppm| Demand { full_ppm: *full_ppm, least_ppm: full_ppm / 1_000 }).collect()
}

#[test]
fn rooms_of_a_thread_share_it() {
    for (demands, share) in [
        (vec![], SHARE_MAX_PPM),
        (vec![900_000], SHARE_MAX_PPM),
        (vec![3_000_000], SHARE_MAX_PPM),
        (vec![450_000, 450_000], SHARE_MAX_PPM),
        (vec![450_000, 450_001], 450_000),
        (vec![900_000, 900_000, 900_000], 300_000),
        // The small ones get all they need.
        (vec![100_000, 2_000_000, 50_000], 750_000),
        (vec![u32::MAX; 3], 300_000),
        (vec![1; 900_000], SHARE_MAX_PPM),
    ] {
        assert_eq!(share_ppm(&dilating_freely(&demands)), share, "{} rooms", demands.len());
    }
    // Each room gets something.
    assert_eq!(share_ppm(&dilating_freely(&vec![2; 900_001])), 1);
}

#[test]
fn what_a_room_takes_at_its_lowest_rate_is_not_shared() {
    let demand = |full_ppm, least_ppm| Demand { full_ppm, least_ppm };
    let small = [demand(10_000, 1_000); 8];
    let with = |rooms: &[Demand]| share_ppm(&[rooms, &small].concat());
    // Of 900,000 millionths, the small ones take 80,000.
    assert_eq!(with(&[demand(5_000_000, 410_000), demand(2_000_000, 200_000)]), 410_000);
    assert_eq!(with(&[demand(5_000_000, 500_000), demand(2_000_000, 200_000)]), 320_000);
    assert_eq!(with(&[demand(500_000, 500_000), demand(2_000_000, 200_000)]), 320_000, "one that skips ticks");
    // A tenth of the thread is an equal part of it, whatever the others take.
    assert_eq!(with(&[demand(5_000_000, 731_000), demand(2_000_000, 20_000)]), 90_000);
    assert_eq!(with(&[demand(5_000_000, 5_000_000), demand(2_000_000, 20_000)]), 90_000);
}

#[test]
fn a_room_that_needs_its_share_keeps_its_rate_and_a_larger_one_slows() {
    let share = share_ppm(&dilating_freely(&[100_000, 2_000_000]));
    let (mut small, mut large) = (dilating(100), dilating(100));
    for _ in 0..100 {
        small.observe(STEP_NS / 10, share);
        large.observe(STEP_NS * 2, share);
    }
    assert!(small.rate().is_full());
    assert!((400..=422).contains(&large.rate().permille()), "{:?}", large.rate());
}
