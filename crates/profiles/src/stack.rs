//! The call stack of the current thread, as addresses.

/// Maximum number of frames of a stack. The outermost ones of deeper stacks are missing.
pub(crate) const FRAMES_MAX: usize = 96;

/// A call stack.
#[derive(Clone, Copy)]
pub(crate) struct Stack {
    depth: usize,
    frames: [usize; FRAMES_MAX],
}

impl Stack {
    /// The stack of the caller. Neither allocates nor locks, so it may be called from a signal handler and an allocator.
    pub(crate) fn of_caller() -> Self {
        let mut stack = Self { depth: 0, frames: [0; FRAMES_MAX] };
        // SAFETY: the unwinder keeps its state on this stack. The lock of the safe function is for symbols.
        unsafe {
            backtrace::trace_unsynchronized(|frame| stack.push_caller(frame.ip() as usize));
        }
        stack
    }

    /// The stack that a signal has interrupted at the instruction `at`, without the frames of the signal handler.
    pub(crate) fn interrupted_at(at: usize) -> Self {
        let mut stack = Self { depth: 0, frames: [0; FRAMES_MAX] };
        // SAFETY: as above.
        unsafe {
            backtrace::trace_unsynchronized(|frame| {
                let address = frame.ip() as usize;
                if stack.depth > 0 {
                    return stack.push_caller(address);
                }
                address != at || stack.push(at)
            });
        }
        if stack.depth == 0 {
            // Code without unwind tables was interrupted.
            stack.push(at);
        }
        stack
    }

    /// The addresses, innermost first.
    pub(crate) fn frames(&self) -> &[usize] {
        &self.frames[..self.depth]
    }

    /// Adds a return address. The address before it is part of the call.
    fn push_caller(&mut self, address: usize) -> bool {
        address <= 1 || self.push(address - 1)
    }

    /// Returns whether there is space for one more.
    fn push(&mut self, address: usize) -> bool {
        self.frames[self.depth] = address;
        self.depth += 1;
        self.depth < FRAMES_MAX
    }
}
