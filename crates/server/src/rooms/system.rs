//! What a room thread asks of the kernel.

use std::io;

/// The kernel's number for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadId(libc::pid_t);

/// Timers of a room thread go off this late at most, as far as the kernel's own choice goes; it would be 50 µs.
const TIMER_SLACK_NS: libc::c_ulong = 1_000;

/// How much nicer than others a room thread is not.
const NICENESS: libc::c_int = -10;

/// What the kernel granted a room thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// It is waked to the microsecond.
    pub timer_slack: bool,
    /// It goes before other threads; this takes a privilege (`CAP_SYS_NICE`) or a limit on niceness that allows it.
    pub priority: bool,
}

/// This thread's number.
pub(super) fn this_thread() -> ThreadId {
    // SAFETY: takes nothing and cannot fail.
    ThreadId(unsafe { libc::gettid() })
}

/// Makes this thread be on time, as far as the kernel lets it.
pub(super) fn ask_for_punctuality() -> Granted {
    // SAFETY: this operation of prctl reads one number and changes nothing but this thread's timer slack.
    let slack = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK_NS) };
    let ThreadId(thread) = this_thread();
    let thread = libc::id_t::try_from(thread).unwrap_or(0);
    // SAFETY: takes numbers alone; on Linux the number of a thread names that thread.
    let priority = unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, NICENESS) };
    Granted { timer_slack: slack == 0, priority: priority == 0 }
}

/// Lets a thread run only when the processor has nothing else to do.
///
/// # Errors
/// The kernel's, for one if the thread has ended.
pub(super) fn make_idle(ThreadId(thread): ThreadId) -> io::Result<()> {
    // SAFETY: a structure of numbers, for which zero is what this policy asks for.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a structure that lives until the call returns; the kernel only reads it.
    let changed = unsafe { libc::sched_setscheduler(thread, libc::SCHED_IDLE, &raw const parameters) };
    if changed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sleeps until this thread gets a signal. Allocates nothing.
pub(super) fn wait_for_a_signal() {
    // SAFETY: takes nothing; returns after a signal's handler has run.
    unsafe { libc::pause() };
}
