//! Checks every interleaving of the flag's protocol, including weak memory effects, with loom. Compiles the flag's own
//! source a second time with loom's atomics.

use std::sync::Arc;

use loom::{
    sync::{
        Notify,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use wake_flag::WakeFlag;

#[path = "../src/ring/wake_flag.rs"]
mod wake_flag;

mod atomics {
    pub(super) use loom::sync::atomic::{AtomicBool, Ordering, fence};
}

/// A primitive to sleep on, like a reactor with its eventfd. A call before the sleep ends the sleep at once.
struct Sleep(Notify);

/// The operations of both sides of a flag.
trait Protocol: Send + Sync + 'static {
    fn new() -> Self;
    fn arm(&self);
    fn disarm(&self);
    fn try_take(&self) -> bool;
}

impl Protocol for WakeFlag {
    fn new() -> Self {
        Self::default()
    }
    fn arm(&self) {
        WakeFlag::arm(self);
    }
    fn disarm(&self) {
        WakeFlag::disarm(self);
    }
    fn try_take(&self) -> bool {
        WakeFlag::try_take(self)
    }
}

/// A flag without fences. The model must detect its lost wakeup.
struct UnfencedFlag(loom::sync::atomic::AtomicBool);

impl Protocol for UnfencedFlag {
    fn new() -> Self {
        Self(loom::sync::atomic::AtomicBool::new(false))
    }
    fn arm(&self) {
        self.0.store(true, Ordering::Release);
    }
    fn disarm(&self) {
        self.0.store(false, Ordering::Release);
    }
    fn try_take(&self) -> bool {
        self.0.load(Ordering::Acquire) && self.0.swap(false, Ordering::AcqRel)
    }
}

/// Each of `callers` threads adds one message, and the waiter sleeps until it has seen all messages. A lost wakeup is a
/// deadlock, which loom reports.
fn no_message_is_missed_while_sleeping<B: Protocol>(callers: usize) {
    let mut model = loom::model::Builder::new();
    // With two threads, all interleavings are checked. With three, only those with at most this number of preemptions,
    // which takes seconds.
    model.preemption_bound = if callers > 1 { Some(3) } else { None };
    model.check(move || {
        let flag = Arc::new(B::new());
        let sleep = Arc::new(Sleep(Notify::new()));
        let messages: Arc<Vec<AtomicUsize>> = Arc::new((0..callers).map(|_| AtomicUsize::new(0)).collect());
        let threads: Vec<_> = (0..callers)
            .map(|caller| {
                let (flag, sleep, messages) = (Arc::clone(&flag), Arc::clone(&sleep), Arc::clone(&messages));
                thread::spawn(move || {
                    messages[caller].store(1, Ordering::Release);
                    if flag.try_take() {
                        sleep.0.notify();
                    }
                })
            })
            .collect();
        let seen = || messages.iter().map(|message| message.load(Ordering::Acquire)).sum::<usize>();
        while seen() < callers {
            flag.arm();
            if seen() < callers {
                sleep.0.wait();
            }
            flag.disarm();
        }
        for thread in threads {
            thread.join().expect("a caller never panics");
        }
    });
}

#[test]
fn one_caller_wakes_the_sleeper() {
    no_message_is_missed_while_sleeping::<WakeFlag>(1);
}

#[test]
fn two_callers_wake_the_sleeper() {
    no_message_is_missed_while_sleeping::<WakeFlag>(2);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_finds_a_bell_without_fences() {
    no_message_is_missed_while_sleeping::<UnfencedFlag>(1);
}
