use std::{hint::black_box, thread, time::Duration};

use super::*;

#[test]
fn growth_is_allocated_minus_freed_bytes() {
    let (kept, growth) = measured(i64::MAX, || {
        let gone = black_box(vec![1_u8; 5_000]);
        drop(gone);
        let mut kept = Vec::<u8>::with_capacity(1_000);
        kept.reserve_exact(3_000);
        black_box(kept)
    });
    assert_eq!(growth, i64::try_from(kept.capacity()).unwrap());
    let ((), growth) = measured(i64::MAX, || drop(kept));
    assert!(growth <= -3_000, "{growth}");
}

#[test]
fn zeroed_allocations_are_counted() {
    let (kept, growth) = measured(i64::MAX, || black_box(vec![0_u8; 12_345]));
    assert_eq!(growth, i64::try_from(kept.len()).unwrap());
}

#[test]
fn an_allocation_past_the_ceiling_stops_the_thread() {
    const BYTES: usize = 1 << 20;
    const CEILING: i64 = 1 << 20;
    let at = thread::spawn(|| {
        stopped_flag();
        measured(CEILING, || black_box(vec![0_u8; BYTES])).1
    });
    assert_eq!(at.join().expect("the thread continues"), CEILING);

    let (send, receive) = std::sync::mpsc::channel();
    let past = thread::spawn(move || {
        send.send(stopped_flag()).expect("the receiver waits");
        measured(CEILING, || black_box(vec![0_u8; BYTES + 1])).1
    });
    let flag = receive.recv().expect("a flag");
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !flag.load(Ordering::Acquire) {
        assert!(!past.is_finished(), "it went on past its ceiling");
        assert!(std::time::Instant::now() < deadline, "it was not stopped");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(!past.is_finished());
}

#[test]
fn the_ceiling_is_lifted_after_a_panic() {
    spare_panic_hooks();
    let ended = thread::spawn(|| {
        let unwound = std::panic::catch_unwind(|| measured(1 << 20, || panic!("on purpose")));
        assert!(unwound.is_err());
        black_box(vec![0_u8; 4 << 20]).len()
    });
    assert_eq!(ended.join().expect("nothing stops it"), 4 << 20);
}

#[test]
fn a_panic_hook_allocates_without_limit_or_account() {
    const NAME: &str = "takes-memory-in-its-hook";
    // Installed first, so that no other test can install it over this test's hook in the meantime.
    spare_panic_hooks();
    let before = std::panic::take_hook();
    std::panic::set_hook(spared(Box::new(move |info| {
        if thread::current().name() == Some(NAME) {
            std::mem::forget(black_box(vec![1_u8; 4 << 20]));
        } else {
            before(info);
        }
    })));
    let panics = || {
        let balance = BALANCE_BYTES.get();
        let unwound = std::panic::catch_unwind(|| measured(1 << 20, || panic!("on purpose")));
        assert!(unwound.is_err());
        BALANCE_BYTES.get() - balance
    };
    let ended = thread::Builder::new().name(NAME.to_owned()).spawn(panics).expect("a thread");
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !ended.is_finished() {
        assert!(std::time::Instant::now() < deadline, "it was stopped within its hook");
        thread::sleep(Duration::from_millis(1));
    }
    let growth = ended.join().expect("it ends");
    assert!(growth.abs() < 1 << 20, "{growth} bytes");
}
