//! Checks every interleaving of the bell's protocol, including weak memory effects, with loom. Compiles the bell's own
//! source a second time with loom's atomics.

use std::sync::Arc;

use loom::{
    sync::{
        Notify,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use bell::Bell;

#[path = "../src/ring/bell.rs"]
mod bell;

mod atomics {
    pub(super) use loom::sync::atomic::{AtomicBool, Ordering, fence};
}

/// Something to sleep on, like a reactor with its eventfd: a call that comes before the sleep ends it at once.
struct Sleep(Notify);

/// What the two sides do, whichever bell they have.
trait Protocol: Send + Sync + 'static {
    fn new() -> Self;
    fn arm(&self);
    fn disarm(&self);
    fn answer(&self) -> bool;
}

impl Protocol for Bell {
    fn new() -> Self {
        Self::default()
    }
    fn arm(&self) {
        Bell::arm(self);
    }
    fn disarm(&self) {
        Bell::disarm(self);
    }
    fn answer(&self) -> bool {
        Bell::answer(self)
    }
}

/// The same without fences: what the model has to find.
struct UnfencedBell(loom::sync::atomic::AtomicBool);

impl Protocol for UnfencedBell {
    fn new() -> Self {
        Self(loom::sync::atomic::AtomicBool::new(false))
    }
    fn arm(&self) {
        self.0.store(true, Ordering::Release);
    }
    fn disarm(&self) {
        self.0.store(false, Ordering::Release);
    }
    fn answer(&self) -> bool {
        self.0.load(Ordering::Acquire) && self.0.swap(false, Ordering::AcqRel)
    }
}

/// `callers` threads put one message each; the waiter sleeps until it has seen all. A lost call is a deadlock, which loom
/// reports.
fn no_message_is_missed_while_sleeping<B: Protocol>(callers: usize) {
    let mut model = loom::model::Builder::new();
    // All interleavings of two threads; of three, those with at most this many preemptions, which takes seconds.
    model.preemption_bound = if callers > 1 { Some(3) } else { None };
    model.check(move || {
        let bell = Arc::new(B::new());
        let sleep = Arc::new(Sleep(Notify::new()));
        let messages: Arc<Vec<AtomicUsize>> = Arc::new((0..callers).map(|_| AtomicUsize::new(0)).collect());
        let threads: Vec<_> = (0..callers)
            .map(|caller| {
                let (bell, sleep, messages) = (Arc::clone(&bell), Arc::clone(&sleep), Arc::clone(&messages));
                thread::spawn(move || {
                    messages[caller].store(1, Ordering::Release);
                    if bell.answer() {
                        sleep.0.notify();
                    }
                })
            })
            .collect();
        let seen = || messages.iter().map(|message| message.load(Ordering::Acquire)).sum::<usize>();
        while seen() < callers {
            bell.arm();
            if seen() < callers {
                sleep.0.wait();
            }
            bell.disarm();
        }
        for thread in threads {
            thread.join().expect("a caller never panics");
        }
    });
}

#[test]
fn one_caller_wakes_the_sleeper() {
    no_message_is_missed_while_sleeping::<Bell>(1);
}

#[test]
fn two_callers_wake_the_sleeper() {
    no_message_is_missed_while_sleeping::<Bell>(2);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_finds_a_bell_without_fences() {
    no_message_is_missed_while_sleeping::<UnfencedBell>(1);
}
