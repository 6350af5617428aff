//! Tests that run twice: on epoll and on `io_uring`.

use std::cell::Cell;

use dunlin_net::ReactorOption;

thread_local! {
    static CURRENT: Cell<ReactorOption> = const { Cell::new(ReactorOption::Epoll) };
}

/// Also runs these tests of a module on `io_uring`. A test of the tree compares the list with the module's tests.
macro_rules! on_io_uring {
    [$($test:ident),* $(,)?] => {
        mod on_io_uring {
            $(
                #[test]
                fn $test() {
                    crate::each_reactor::run_on(dunlin_net::ReactorOption::IoUring, super::$test);
                }
            )*
        }
    };
}

/// The reactor of the test on this thread.
pub fn current() -> ReactorOption {
    CURRENT.get()
}

/// The name of the current reactor in a configuration.
pub fn current_name() -> &'static str {
    match current() {
        ReactorOption::IoUring => "io_uring",
        ReactorOption::Epoll | ReactorOption::Auto => "epoll",
    }
}

/// Runs a test on a reactor.
pub fn run_on(reactor: ReactorOption, test: fn()) {
    struct Restored(ReactorOption);

    impl Drop for Restored {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }

    let _restored = Restored(CURRENT.replace(reactor));
    test();
}
