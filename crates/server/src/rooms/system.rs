//! Settings of a room thread in the kernel: priority, timer slack.

use std::io;

/// The kernel's id of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ThreadId(libc::pid_t);

/// Timer slack of a room thread; the default is 50 µs.
const TIMER_SLACK_NS: libc::c_ulong = 1_000;

/// Niceness of a room thread.
const NICENESS: libc::c_int = -10;

/// The settings that the kernel granted a room thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// Its timers are accurate to a microsecond.
    pub timer_slack: bool,
    /// It has priority over other threads. This requires `CAP_SYS_NICE` or a sufficient `RLIMIT_NICE`.
    pub priority: bool,
}

pub(super) fn this_thread() -> ThreadId {
    // SAFETY: the call takes no arguments and cannot fail.
    ThreadId(unsafe { libc::gettid() })
}

/// Requests accurate timers and priority for this thread.
pub(super) fn request_punctual_scheduling() -> Granted {
    // SAFETY: this operation of prctl takes one number and changes only this thread's timer slack.
    let slack = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK_NS) };
    let ThreadId(thread) = this_thread();
    let thread = libc::id_t::try_from(thread).unwrap_or(0);
    // SAFETY: the call takes only numbers; on Linux a thread id refers to that thread.
    let priority = unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, NICENESS) };
    Granted { timer_slack: slack == 0, priority: priority == 0 }
}

/// Gives a thread the idle scheduling policy.
///
/// # Errors
/// The kernel's error, for example if the thread has ended.
pub(super) fn make_idle(ThreadId(thread): ThreadId) -> io::Result<()> {
    // SAFETY: the structure contains only numbers, and this policy requires zeros.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer refers to a structure that outlives the call; the kernel only reads it.
    let changed = unsafe { libc::sched_setscheduler(thread, libc::SCHED_IDLE, &raw const parameters) };
    if changed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
