//! CPU profiles.

use std::{
    hint::black_box,
    mem::MaybeUninit,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use dunlin_profiles::{Names, cpu_profile};

use crate::{decoded::Decoded, process};

fn time_of(clock: libc::clockid_t) -> Duration {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the pointer is valid for the call, which fills it.
    let time = unsafe {
        assert_eq!(libc::clock_gettime(clock, time.as_mut_ptr()), 0);
        time.assume_init()
    };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("below a second"))
}

/// The processor time of the whole process so far.
fn process_time() -> Duration {
    time_of(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Threads that use the processor, and how much of it they have used.
#[derive(Default)]
struct Workers {
    has_ended: AtomicBool,
    used_ns: AtomicU64,
    /// What they had used when a recording asked for the first and for the last time whether it is cancelled.
    used_ns_at_looks: Mutex<Option<(u64, u64)>>,
}

impl Workers {
    /// Uses the processor until the workers are ended.
    fn work(&self) {
        let (mut sum, mut counted) = (0_u64, Duration::ZERO);
        while !self.has_ended.load(Ordering::Relaxed) {
            for number in 0..1_000 {
                sum = black_box(sum.wrapping_add(number));
            }
            let used = time_of(libc::CLOCK_THREAD_CPUTIME_ID);
            let more = used.saturating_sub(std::mem::replace(&mut counted, used));
            self.used_ns.fetch_add(u64::try_from(more.as_nanos()).expect("a short time"), Ordering::Relaxed);
        }
    }

    /// Called by a recording, as long as it takes samples.
    fn look(&self) {
        let used_ns = self.used_ns.load(Ordering::Relaxed);
        let mut looks = self.used_ns_at_looks.lock().expect("no test has panicked");
        let first_ns = looks.map_or(used_ns, |(first_ns, _)| first_ns);
        *looks = Some((first_ns, used_ns));
    }

    fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// What they have used while samples were taken. How much that is depends on the machine.
    fn used_while_sampled(&self) -> Duration {
        let looks = self.used_ns_at_looks.lock().expect("no test has panicked");
        let (first_ns, last_ns) = looks.expect("the recording has looked");
        Duration::from_nanos(last_ns - first_ns)
    }
}

/// The time between two samples of a thread.
const PERIOD: Duration = Duration::from_millis(10);

/// The sampled processor time of a profile.
fn sampled(profile: &Decoded) -> Duration {
    Duration::from_nanos(profile.sum(1).unsigned_abs())
}

#[test]
fn samples_stand_for_no_more_than_the_processor_time_that_was_used() {
    const WORKERS: usize = 12;
    let _process = process();
    let workers = Workers::default();
    let (profile, used) = thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| workers.work());
        }
        let before = process_time();
        let look = || {
            workers.look();
            false
        };
        let profile = cpu_profile(Duration::from_millis(500), &mut Names::default(), look).expect("a profile");
        let used = process_time().saturating_sub(before);
        workers.end();
        (Decoded::of(&profile), used)
    });
    let sampled = sampled(&profile);
    // Each thread's first sample may come at once.
    assert!(sampled <= used + PERIOD * (WORKERS as u32 + 10), "{sampled:?} of {used:?}");
    let worked = workers.used_while_sampled();
    assert!(sampled + PERIOD * WORKERS as u32 >= worked / 4, "{sampled:?} of {worked:?}");
}

#[test]
fn threads_come_and_go_during_profiles() {
    const SPAWNERS: usize = 4;
    let _process = process();
    dunlin_profiles::sample_heap(4_096).expect("this program has the allocator");
    let (has_ended, spawned) = (AtomicBool::new(false), AtomicU64::new(0));
    let come_and_go = || {
        while !has_ended.load(Ordering::Relaxed) {
            let short = thread::spawn(|| {
                let mut kept = Vec::new();
                for size in 0..2_000_usize {
                    kept.push(black_box(vec![1_u8; size % 97]));
                }
                kept.len()
            });
            short.join().expect("it does not panic");
            spawned.fetch_add(1, Ordering::Relaxed);
        }
    };
    let before = process_time();
    let profiles: Vec<Decoded> = thread::scope(|scope| {
        for _ in 0..SPAWNERS {
            scope.spawn(come_and_go);
        }
        let record = |_| {
            Decoded::of(&cpu_profile(Duration::from_millis(1_200), &mut Names::default(), || false).expect("a profile"))
        };
        let profiles = (0..2).map(record).collect();
        has_ended.store(true, Ordering::Relaxed);
        profiles
    });
    let used = process_time().saturating_sub(before);
    let all: Duration = profiles.iter().map(sampled).sum();
    assert!(spawned.load(Ordering::Relaxed) > 20, "{spawned:?}");
    // Timers of threads that live shortly may fire at once.
    assert!(all <= used * 2, "{all:?} of {used:?}");
    assert!(profiles.iter().all(|profile| profile.values.iter().all(|values| values.iter().all(|value| *value > 0))));
}

/// The limit on signals that may be queued. A timer holds one.
fn set_signals_max(signals_max: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointers are valid for the calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_SIGPENDING, &raw mut limit), 0);
        let before = std::mem::replace(&mut limit.rlim_cur, signals_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const limit), 0);
        before
    }
}

#[test]
fn a_thread_that_gets_no_timer_is_missing_and_the_others_are_not() {
    let _process = process();
    let (watched, other) = (Workers::default(), Workers::default());
    let (was_asked, allowed) = (AtomicBool::new(false), AtomicU64::new(0));
    let profile = thread::scope(|scope| {
        scope.spawn(|| watched.work());
        // The recording asks this after it has given timers to all threads.
        let profile = cpu_profile(Duration::from_secs(1), &mut Names::default(), || {
            watched.look();
            if !was_asked.swap(true, Ordering::Relaxed) {
                allowed.store(set_signals_max(0), Ordering::Relaxed);
                scope.spawn(|| other.work());
            }
            false
        });
        set_signals_max(allowed.load(Ordering::Relaxed));
        watched.end();
        other.end();
        Decoded::of(&profile.expect("what was recorded stays"))
    });
    assert!(profile.says("threads were not sampled: "), "{:?}", profile.texts);
    let (sampled, worked) = (sampled(&profile), watched.used_while_sampled());
    assert!(sampled + PERIOD >= worked / 4, "{sampled:?} of {worked:?}");
}

#[test]
fn without_any_timer_there_is_no_profile_and_the_next_one_is_recorded() {
    let _process = process();
    let allowed = set_signals_max(0);
    let refused = cpu_profile(Duration::from_secs(1), &mut Names::default(), || false);
    set_signals_max(allowed);
    assert!(refused.expect_err("no thread has a timer").to_string().contains("the system refuses"));
    assert!(cpu_profile(Duration::from_millis(1), &mut Names::default(), || false).is_ok());
}
