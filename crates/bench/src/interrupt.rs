//! Ctrl-C and SIGTERM end a run early. Scenarios of profiles look for them, write their result, and say that it is partial; a second
//! signal ends them at once. The others end at once with the first one. None leaves folders.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::Error;

/// Signals that have arrived.
static SIGNALS: AtomicU32 = AtomicU32::new(0);
/// This signal ends the process without cleaning up, in case cleaning up hangs.
const SIGNALS_MAX: u32 = 5;
/// Folders of servers that this process has started.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// How soon a signal ends the process.
const LOOK_EVERY: Duration = Duration::from_millis(50);

extern "C" fn ask(_signal: libc::c_int) {
    if SIGNALS.fetch_add(1, Ordering::Relaxed) + 1 >= SIGNALS_MAX {
        // SAFETY: a handler may call it at any time (signal-safety(7)).
        unsafe { libc::_exit(1) };
    }
}

/// Begins to watch for signals. A second one ends the process at once.
pub fn watch() -> Result<(), Error> {
    handle()?;
    end_at(2);
    Ok(())
}

fn handle() -> Result<(), Error> {
    // SAFETY: zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = ask as *const () as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the action is valid for the call, and its handler only counts, or exits.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(Error::os("watch for signals", io::Error::last_os_error(), "start the run again"));
        }
    }
    Ok(())
}

/// Fails if the run was interrupted.
pub fn check() -> Result<(), Error> {
    match SIGNALS.load(Ordering::Relaxed) {
        0 => Ok(()),
        _ => Err(Error::Scenario("the run was interrupted".to_owned())),
    }
}

/// Watches for signals in place of a scenario that does not look for them. Servers end with this process.
pub fn end_at_once() -> Result<(), Error> {
    handle()?;
    end_at(1);
    Ok(())
}

/// Removes all folders and ends the process when so many signals have arrived.
fn end_at(signals: u32) {
    thread::spawn(move || {
        while SIGNALS.load(Ordering::Relaxed) < signals {
            thread::sleep(LOOK_EVERY);
        }
        // The lock is kept, so that no folder is made any more.
        let folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        for folder in folders.iter() {
            let _ = fs::remove_dir_all(folder);
        }
        let _ = writeln!(io::stderr(), "dunlin-bench: the run was interrupted");
        std::process::exit(1);
    });
}

/// Makes a folder that [`remove_folder`] or a signal removes.
pub fn make_folder(folder: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    make(folder)?;
    folders.push(folder.to_owned());
    Ok(())
}

/// Removes a folder.
pub fn remove_folder(folder: &Path) {
    let mut folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    // Fails only if the folder is already gone.
    let _ = fs::remove_dir_all(folder);
    folders.retain(|one| one != folder);
}

/// Lets the orchestrator end this process: Ctrl-C in a terminal reaches all of them.
pub fn leave_to_the_orchestrator() {
    // SAFETY: ignoring a signal has no conditions.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
}
