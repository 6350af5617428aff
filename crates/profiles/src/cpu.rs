//! Where threads spend processor time. Each thread has a timer that counts its own processor time and sends it a signal
//! every ten milliseconds of it. So idle threads cost nothing, and no thread is sampled in place of another.

use std::{
    cell::UnsafeCell,
    collections::{HashMap, HashSet},
    fmt, io,
    mem::MaybeUninit,
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    pprof::{Names, Profile, Sample},
    stack::Stack,
};

/// Samples of each second of processor time.
pub const SAMPLES_PER_SECOND: u32 = 100;

const PERIOD_NS: i64 = 1_000_000_000 / SAMPLES_PER_SECOND as i64;

/// Time between two collections of samples.
const COLLECT_EVERY: Duration = Duration::from_millis(100);

/// Number of collections between two looks for new threads.
const COLLECTIONS_PER_LOOK: u32 = 10;

/// Samples that may wait for their collection: those of a hundred busy threads.
const WAITING_MAX: usize = 1_024;

/// Maximum number of different stacks in a profile. Samples with others are counted as dropped.
const STACKS_MAX: usize = 65_536;

/// Whether a profile is being recorded.
static IS_BUSY: AtomicBool = AtomicBool::new(false);

/// Whether the signal handler takes samples.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Samples on their way from the signal handler. They stay allocated, because a handler may run late.
static WAITING: OnceLock<Box<[Slot]>> = OnceLock::new();

/// How many slots signal handlers have tried, one after the other.
static NEXT_SLOT: AtomicUsize = AtomicUsize::new(0);

/// Samples that found no free slot.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Why there is no CPU profile.
#[derive(Debug)]
pub enum CpuError {
    /// Another one is being recorded.
    Busy,
    /// Nobody waits for it any more.
    Cancelled,
    /// The C library takes a lock when a stack is unwound.
    LockedUnwinder {
        /// Its version.
        libc_version: String,
    },
    /// The system refuses what it needs.
    System(io::Error),
}

/// A place for a sample.
struct Slot {
    state: AtomicU8,
    taken: UnsafeCell<MaybeUninit<Taken>>,
}

/// A free slot; one that a signal handler writes; one that is ready to be read.
const FREE: u8 = 0;
const WRITING: u8 = 1;
const READY: u8 = 2;

// SAFETY: whoever changes `state` from FREE to WRITING is the only one to write, until it stores READY; from then on, only the one
// collector reads, until it stores FREE.
unsafe impl Sync for Slot {}

#[derive(Clone, Copy)]
struct Taken {
    thread: libc::pid_t,
    /// More than one if the signal was late.
    periods: u32,
    stack: Stack,
}

/// The only recording.
struct Recording {
    timers: HashMap<libc::pid_t, Timer>,
    /// Names of threads, also of those that have ended.
    names: HashMap<libc::pid_t, String>,
    periods: HashMap<(libc::pid_t, Box<[usize]>), u64>,
    dropped: u64,
    /// [`NEXT_SLOT`] of the next slot to collect.
    collected: usize,
    unwatched: Unwatched,
}

/// The threads that have no timer, because the system refused one.
#[derive(Default)]
struct Unwatched {
    threads: HashSet<libc::pid_t>,
    why: Option<io::Error>,
}

/// A timer of a thread's processor time.
struct Timer(libc::timer_t);

/// Whether the unwinder finds the tables of a function without a lock. With a lock, a signal handler would wait for a
/// thread that loads a library, which may wait for the interrupted one. Since 2.35, glibc has a function without one,
/// which the unwinder of GCC 12 and later uses.
fn unwinds_without_lock() -> bool {
    // SAFETY: the name ends with a zero, and nothing is called.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    !found.is_null()
}

fn check_unwinder(is_without_lock: bool) -> Result<(), CpuError> {
    if is_without_lock {
        return Ok(());
    }
    // SAFETY: it returns a constant text that ends with a zero.
    let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
    Err(CpuError::LockedUnwinder { libc_version: version.to_string_lossy().into_owned() })
}

/// Records for `duration`, or until `is_cancelled` returns true, and returns the profile in pprof format. Blocks. Only one
/// profile is recorded at a time.
///
/// # Errors
/// [`CpuError`]
pub fn cpu_profile(
    duration: Duration,
    names: &mut Names,
    is_cancelled: impl Fn() -> bool,
) -> Result<Vec<u8>, CpuError> {
    let mut recording = Recording::begin()?;
    recording.watch_threads();
    recording.check_watched()?;
    let began = Instant::now();
    let mut collections = 1;
    while let Some(left) = duration.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
        if is_cancelled() {
            return Err(CpuError::Cancelled);
        }
        if collections % COLLECTIONS_PER_LOOK == 0 {
            recording.watch_threads();
        }
        std::thread::sleep(left.min(COLLECT_EVERY));
        recording.collect();
        collections += 1;
    }
    recording.watch_threads();
    let took = began.elapsed();
    let profile = recording.end(took);
    Ok(profile.encode(names))
}

impl Slot {
    /// The sample, if it is ready. Only the one collector calls this.
    fn take(&self) -> Option<Taken> {
        if self.state.load(Ordering::Acquire) != READY {
            return None;
        }
        // SAFETY: the slot is ready, so it is initialized, and nobody writes it before it is free.
        let taken = unsafe { (*self.taken.get()).assume_init() };
        self.state.store(FREE, Ordering::Release);
        Some(taken)
    }
}

impl Recording {
    fn begin() -> Result<Self, CpuError> {
        check_unwinder(unwinds_without_lock())?;
        if IS_BUSY.swap(true, Ordering::Acquire) {
            return Err(CpuError::Busy);
        }
        // From here on, dropping it allows the next one.
        let recording = Self {
            timers: HashMap::new(),
            names: HashMap::new(),
            periods: HashMap::new(),
            dropped: 0,
            collected: NEXT_SLOT.load(Ordering::Relaxed),
            unwatched: Unwatched::default(),
        };
        let slot = || Slot { state: AtomicU8::new(FREE), taken: UnsafeCell::new(MaybeUninit::uninit()) };
        WAITING.get_or_init(|| (0..WAITING_MAX).map(|_| slot()).collect());
        // The first unwinding may load a library.
        let _ = Stack::of_caller();
        install_handler()?;
        // A late signal of the last profile may have left one behind.
        for slot in WAITING.get().into_iter().flatten() {
            let _ = slot.take();
        }
        DROPPED.store(0, Ordering::Relaxed);
        IS_ON.store(true, Ordering::Release);
        Ok(recording)
    }

    /// Gives each thread a timer that has none, and notes the threads' names. A refusal of the system leaves what was
    /// recorded so far as it is.
    fn watch_threads(&mut self) {
        let tasks = match std::fs::read_dir("/proc/self/task") {
            Ok(tasks) => tasks,
            Err(error) => return self.unwatched.why = Some(error),
        };
        for task in tasks.flatten() {
            let Some(thread) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if !self.timers.contains_key(&thread) {
                self.watch(thread);
            }
            // A thread sets its name after its start. It may have ended meanwhile.
            if let Ok(name) = std::fs::read_to_string(task.path().join("comm")) {
                self.names.insert(thread, name.trim_end().to_owned());
            }
        }
    }

    fn watch(&mut self, thread: libc::pid_t) {
        match Timer::start(thread) {
            Ok(Some(timer)) => {
                self.timers.insert(thread, timer);
                self.unwatched.threads.remove(&thread);
            }
            Ok(None) => {}
            Err(error) => {
                self.unwatched.threads.insert(thread);
                self.unwatched.why = Some(error);
            }
        }
    }

    /// An error if the system lets no thread be watched.
    fn check_watched(&mut self) -> Result<(), CpuError> {
        match self.unwatched.why.take() {
            Some(error) if self.timers.is_empty() => Err(error.into()),
            why => {
                self.unwatched.why = why;
                Ok(())
            }
        }
    }

    fn comments(&self, dropped: u64) -> Vec<String> {
        let Unwatched { threads, why } = &self.unwatched;
        let dropped = (dropped > 0).then(|| format!("{dropped} samples were dropped"));
        let unwatched = why.as_ref().map(|error| format!("{} threads were not sampled: {error}", threads.len()));
        dropped.into_iter().chain(unwatched).collect()
    }

    fn collect(&mut self) {
        let slots = WAITING.get().map_or(&[][..], |slots| slots);
        let tried = NEXT_SLOT.load(Ordering::Relaxed);
        // All other slots are as they were. One that is still being written is collected at the end, or when it is tried again.
        let changed = tried.wrapping_sub(self.collected).min(WAITING_MAX);
        self.collected = tried;
        for back in (1..=changed).rev() {
            if let Some(taken) = slots.get(tried.wrapping_sub(back) % WAITING_MAX).and_then(Slot::take) {
                self.add(&taken);
            }
        }
    }

    fn add(&mut self, taken: &Taken) {
        let key = (taken.thread, Box::from(taken.stack.frames()));
        if self.periods.len() < STACKS_MAX || self.periods.contains_key(&key) {
            *self.periods.entry(key).or_default() += u64::from(taken.periods);
        } else {
            self.dropped += u64::from(taken.periods);
        }
    }

    fn end(mut self, took: Duration) -> Profile {
        IS_ON.store(false, Ordering::Release);
        self.timers.clear();
        for taken in WAITING.get().into_iter().flatten().filter_map(Slot::take) {
            self.add(&taken);
        }
        let dropped = self.dropped + DROPPED.load(Ordering::Relaxed);
        let comments = self.comments(dropped);
        let names = std::mem::take(&mut self.names);
        let samples = std::mem::take(&mut self.periods).into_iter().map(|((thread, frames), periods)| Sample {
            frames,
            values: vec![periods.cast_signed(), periods.cast_signed() * PERIOD_NS],
            thread: names.get(&thread).cloned(),
        });
        Profile {
            value_types: &[("samples", "count"), ("cpu", "nanoseconds")],
            default_type: "cpu",
            period_type: ("cpu", "nanoseconds"),
            period: PERIOD_NS,
            duration_ns: took.as_nanos() as i64,
            comments,
            own_functions: &[],
            samples: samples.collect(),
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        IS_ON.store(false, Ordering::Release);
        self.timers.clear();
        IS_BUSY.store(false, Ordering::Release);
    }
}

impl Timer {
    /// `None` if the thread has ended.
    fn start(thread: libc::pid_t) -> io::Result<Option<Self>> {
        // SAFETY: all fields are integers, pointers and unions of them, for which zeros are valid.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = libc::SIGPROF;
        event.sigev_notify_thread_id = thread;
        // The handler learns from it which thread it is in.
        event.sigev_value = libc::sigval { sival_ptr: ptr::without_provenance_mut(thread.cast_unsigned() as usize) };
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: both pointers are valid for the call.
        if unsafe { libc::timer_create(processor_time_of(thread), &raw mut event, &raw mut timer) } != 0 {
            let error = io::Error::last_os_error();
            let has_ended = matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ESRCH));
            return if has_ended { Ok(None) } else { Err(error) };
        }
        let timer = Self(timer);
        let time = |ns: i64| libc::timespec { tv_sec: 0, tv_nsec: ns };
        // Threads that do the same at the same time are not sampled at the same place.
        let first = 1 + i64::from(thread).wrapping_mul(7_919_000) % PERIOD_NS;
        let schedule = libc::itimerspec { it_interval: time(PERIOD_NS), it_value: time(first) };
        // SAFETY: the timer exists, and the pointer is valid for the call.
        if unsafe { libc::timer_settime(timer.0, 0, &raw const schedule, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Some(timer))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: it exists, and is not used any more.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// The clock of a thread's processor time, as the kernel's `MAKE_THREAD_CPUCLOCK` makes it. The C library has it for a
/// `pthread_t` only.
const fn processor_time_of(thread: libc::pid_t) -> libc::clockid_t {
    const SCHEDULED: libc::clockid_t = 2;
    const PER_THREAD: libc::clockid_t = 4;
    (!thread << 3) | SCHEDULED | PER_THREAD
}

/// The handler stays: a signal that arrives after the last timer is gone would end the process without one.
fn install_handler() -> io::Result<()> {
    // SAFETY: zeros are valid, as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_signal as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the handler does only what is allowed in one: it reads and writes atomics and its own slot, and unwinds.
    if unsafe { libc::sigaction(libc::SIGPROF, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// What the kernel says about the signal of a timer (`siginfo_t` of `SI_TIMER`). The C library has no names for `timer` and
/// `overruns`.
#[repr(C)]
struct TimerSignal {
    signal: libc::c_int,
    errno: libc::c_int,
    code: libc::c_int,
    /// What follows may contain pointers, and is aligned as they are.
    padding: libc::c_int,
    timer: libc::c_int,
    overruns: libc::c_int,
    value: libc::sigval,
}

const _: () = assert!(
    std::mem::offset_of!(TimerSignal, timer) == 16
        && std::mem::offset_of!(TimerSignal, overruns) == 20
        && std::mem::offset_of!(TimerSignal, value) == 24
);

extern "C" fn on_signal(_signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: it is the calling thread's own variable.
    let errno = unsafe { *libc::__errno_location() };
    if IS_ON.load(Ordering::Acquire) && !info.is_null() && !context.is_null() {
        // SAFETY: the kernel has passed both, and they live until the handler returns.
        unsafe { take_sample(&*info.cast::<TimerSignal>(), &*context.cast::<libc::ucontext_t>()) };
    }
    // SAFETY: as above. What was interrupted may be about to read it.
    unsafe { *libc::__errno_location() = errno };
}

/// # Safety
/// `signal` must be that of a timer if its code says so.
unsafe fn take_sample(signal: &TimerSignal, context: &libc::ucontext_t) {
    // Anybody may send the signal.
    if signal.code != libc::SI_TIMER {
        return;
    }
    let slots = WAITING.get().map_or(&[][..], |slots| slots);
    let first = NEXT_SLOT.fetch_add(1, Ordering::Relaxed);
    let Some(slot) = slots.get(first % WAITING_MAX) else { return };
    if slot.state.compare_exchange(FREE, WRITING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let taken = Taken {
        thread: (signal.value.sival_ptr.addr() as u32).cast_signed(),
        periods: 1 + u32::try_from(signal.overruns).unwrap_or(0),
        stack: Stack::interrupted_at(program_counter(context)),
    };
    // SAFETY: the slot is this handler's until it is ready.
    unsafe { (*slot.taken.get()).write(taken) };
    slot.state.store(READY, Ordering::Release);
}

#[cfg(target_arch = "x86_64")]
const fn program_counter(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RIP as usize].cast_unsigned() as usize
}

#[cfg(target_arch = "aarch64")]
const fn program_counter(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.pc as usize
}

impl fmt::Display for CpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("a CPU profile is being recorded, and there is one at a time"),
            Self::Cancelled => f.write_str("nobody waits for the CPU profile any more"),
            Self::LockedUnwinder { libc_version } => write!(
                f,
                "glibc {libc_version} takes a lock when a stack is unwound, so a CPU profile might stop the process: it needs \
                 glibc 2.35 or later"
            ),
            Self::System(error) => write!(f, "the system refuses a CPU profile: {error}"),
        }
    }
}

impl std::error::Error for CpuError {}

impl From<io::Error> for CpuError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_whose_unwinder_takes_a_lock_gets_no_profile_but_the_reason() {
        assert!(check_unwinder(true).is_ok());
        let refused = check_unwinder(false).expect_err("it would wait in a signal handler").to_string();
        assert!(refused.starts_with("glibc 2.") && refused.ends_with("it needs glibc 2.35 or later"), "{refused}");
    }
}
