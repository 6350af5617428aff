//! Ctrl-C and SIGTERM end a run early, so that its result is written and says that it is partial.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::Error;

static IS_ASKED: AtomicBool = AtomicBool::new(false);

extern "C" fn ask(_signal: libc::c_int) {
    IS_ASKED.store(true, Ordering::Relaxed);
}

/// Begins to watch for signals. A second one ends the process at once.
pub fn watch() -> Result<(), Error> {
    // SAFETY: zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = ask as *const () as libc::sighandler_t;
    action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the action is valid for the call, and its handler only stores into an atomic.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(Error::os("watch for signals", io::Error::last_os_error(), "start the run again"));
        }
    }
    Ok(())
}

/// Fails if the run was interrupted.
pub fn check() -> Result<(), Error> {
    if IS_ASKED.load(Ordering::Relaxed) { Err(Error::Scenario("the run was interrupted".to_owned())) } else { Ok(()) }
}

/// Lets the orchestrator end this process: Ctrl-C in a terminal reaches all of them.
pub fn leave_to_the_orchestrator() {
    // SAFETY: ignoring a signal has no conditions.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
}
