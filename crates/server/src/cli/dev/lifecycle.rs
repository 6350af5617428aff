//! What `dunlin dev` does: one state, and one function that says what follows from an event.

/// The state. No state has two builds or two servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lifecycle {
    /// Cargo runs.
    Building(Beside),
    /// A server was started, and does not listen yet.
    Starting,
    Running,
    /// The server was told to end, and the newest program takes its place. Nothing is built meanwhile.
    Ending,
    /// Nothing happens until a file changes.
    Failed(Beside, Why),
    /// A signal has come: the build and the server end, and `dunlin dev` with them.
    Closing,
}

/// The server of an earlier build, while Cargo runs or after it has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    Nothing,
    Starting,
    Running,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The build has failed, with these errors.
    Build(String),
    /// The server has ended on its own, with these last lines.
    Ended(String),
    /// The program could not be started. It is tried again.
    NotStarted(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Files that belong to the build or to the configuration have changed. Not while the state is
    /// [busy](Lifecycle::is_busy).
    Changed,
    /// A build has succeeded. The server that runs, if one does, has another program or configuration, or not.
    Built {
        differs: bool,
    },
    BuildFailed(String),
    /// The server accepts connections.
    Listening,
    ServerEnded(String),
    NotStarted(String),
    /// It is time to try again what has failed for a reason that may have passed.
    Again,
    /// What was told to end has not ended in time.
    Late,
    /// A signal to `dunlin dev`.
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Nothing,
    Build,
    /// Start the newest program.
    Start,
    /// Tell the server to end.
    EndServer,
    /// Tell the build and the server to end.
    EndAll,
    /// End without their consent what has been told to end.
    Kill,
}

/// What the page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown<'a> {
    /// For the script of the page. It shows nothing while this is `running`.
    pub(super) phase: &'static str,
    pub(super) title: &'static str,
    pub(super) text: &'a str,
}

impl Lifecycle {
    /// Whether changes wait until this state has passed.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Building(_) | Self::Ending | Self::Closing)
    }

    /// The only function that changes the state. Events that a state does not expect change nothing.
    pub(super) fn on(&mut self, event: Event) -> Action {
        let before = std::mem::replace(self, Self::Closing);
        let (after, action) = before.after(event);
        *self = after;
        action
    }

    fn after(self, event: Event) -> (Self, Action) {
        match (self, event) {
            // It ends only once: a second signal would have the server end without saving its rooms.
            (Self::Ending | Self::Closing, Event::Stop) => (Self::Closing, Action::Nothing),
            (_, Event::Stop) => (Self::Closing, Action::EndAll),
            (state @ (Self::Ending | Self::Closing), Event::Late) => (state, Action::Kill),

            (Self::Starting, Event::Changed) => (Self::Building(Beside::Starting), Action::Build),
            (Self::Running, Event::Changed) => (Self::Building(Beside::Running), Action::Build),
            (Self::Failed(beside, _), Event::Changed) => (Self::Building(beside), Action::Build),

            (Self::Building(Beside::Nothing), Event::Built { .. })
            | (Self::Ending, Event::ServerEnded(_))
            | (Self::Failed(_, Why::NotStarted(_)), Event::Again) => (Self::Starting, Action::Start),
            // Two servers cannot have the same port and rooms.
            (Self::Building(_), Event::Built { differs: true }) => (Self::Ending, Action::EndServer),
            (Self::Building(Beside::Starting), Event::Built { differs: false }) => (Self::Starting, Action::Nothing),
            (Self::Building(Beside::Running), Event::Built { differs: false }) | (Self::Starting, Event::Listening) => {
                (Self::Running, Action::Nothing)
            }
            (Self::Building(beside), Event::BuildFailed(text)) => {
                (Self::Failed(beside, Why::Build(text)), Action::Nothing)
            }

            (Self::Building(Beside::Starting), Event::Listening) => (Self::Building(Beside::Running), Action::Nothing),
            (Self::Failed(Beside::Starting, why), Event::Listening) => {
                (Self::Failed(Beside::Running, why), Action::Nothing)
            }

            (Self::Starting, Event::NotStarted(text)) => {
                (Self::Failed(Beside::Nothing, Why::NotStarted(text)), Action::Nothing)
            }
            (Self::Starting | Self::Running, Event::ServerEnded(text)) => {
                (Self::Failed(Beside::Nothing, Why::Ended(text)), Action::Nothing)
            }
            (Self::Building(_), Event::ServerEnded(_)) => (Self::Building(Beside::Nothing), Action::Nothing),
            (Self::Failed(_, why), Event::ServerEnded(_)) => (Self::Failed(Beside::Nothing, why), Action::Nothing),

            (state, _) => (state, Action::Nothing),
        }
    }

    pub(super) fn shown(&self) -> Shown<'_> {
        let (phase, title, text) = match self {
            Self::Building(_) => ("building", "Building …", ""),
            Self::Starting => ("starting", "Starting …", ""),
            Self::Running => ("running", "", ""),
            Self::Ending => ("ending", "Replacing the server …", ""),
            Self::Failed(Beside::Nothing, Why::Build(text)) => {
                ("failed", "The build has failed, and no server runs.", text.as_str())
            }
            Self::Failed(_, Why::Build(text)) => {
                ("failed", "The build has failed. The server of the last build goes on.", text.as_str())
            }
            Self::Failed(_, Why::Ended(text)) => ("ended", "The game's server has ended.", text.as_str()),
            Self::Failed(_, Why::NotStarted(text)) => ("ended", "The game's server cannot be started.", text.as_str()),
            Self::Closing => ("ended", "dunlin dev ends.", ""),
        };
        Shown { phase, title, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(beside: Beside) -> Lifecycle {
        Lifecycle::Failed(beside, Why::Build("error".into()))
    }

    /// The states and the actions that follow from events, one after the other.
    fn follow(mut state: Lifecycle, steps: &[(Event, Lifecycle, Action)]) {
        for (event, after, action) in steps {
            assert_eq!((state.on(event.clone()), &state), (*action, after), "after {event:?}");
        }
    }

    #[test]
    fn a_game_is_built_started_and_replaced() {
        use Action::{Build, EndServer, Nothing, Start};
        use Lifecycle::{Building, Ending, Running, Starting};
        follow(
            Building(Beside::Nothing),
            &[
                (Event::Built { differs: true }, Starting, Start),
                (Event::Listening, Running, Nothing),
                (Event::Changed, Building(Beside::Running), Build),
                (Event::Built { differs: true }, Ending, EndServer),
                (Event::Late, Ending, Action::Kill),
                (Event::ServerEnded("by a signal".into()), Starting, Start),
                // A change comes before it listens.
                (Event::Changed, Building(Beside::Starting), Build),
                (Event::Listening, Building(Beside::Running), Nothing),
                (Event::Built { differs: false }, Running, Nothing),
            ],
        );
    }

    #[test]
    fn what_has_failed_is_tried_again_after_a_change() {
        use Action::{Build, Nothing, Start};
        use Lifecycle::{Building, Failed, Starting};
        follow(
            Building(Beside::Nothing),
            &[
                (Event::BuildFailed("error".into()), failed(Beside::Nothing), Nothing),
                (Event::Again, failed(Beside::Nothing), Nothing),
                (Event::Changed, Building(Beside::Nothing), Build),
                (Event::Built { differs: true }, Starting, Start),
                (Event::NotStarted("busy".into()), Failed(Beside::Nothing, Why::NotStarted("busy".into())), Nothing),
                (Event::Again, Starting, Start),
                (Event::ServerEnded("it".into()), Failed(Beside::Nothing, Why::Ended("it".into())), Nothing),
                // The same program, but none runs.
                (Event::Changed, Building(Beside::Nothing), Build),
                (Event::Built { differs: false }, Starting, Start),
                (Event::Changed, Building(Beside::Starting), Build),
                (Event::BuildFailed("error".into()), failed(Beside::Starting), Nothing),
                (Event::Listening, failed(Beside::Running), Nothing),
                (Event::ServerEnded("it".into()), failed(Beside::Nothing), Nothing),
            ],
        );
    }

    #[test]
    fn a_signal_reaches_each_server_once() {
        for running in [
            Lifecycle::Building(Beside::Running),
            Lifecycle::Starting,
            Lifecycle::Running,
            failed(Beside::Running),
            failed(Beside::Nothing),
        ] {
            follow(running, &[(Event::Stop, Lifecycle::Closing, Action::EndAll)]);
        }
        follow(
            Lifecycle::Ending,
            &[
                (Event::Stop, Lifecycle::Closing, Action::Nothing),
                (Event::Stop, Lifecycle::Closing, Action::Nothing),
                (Event::Late, Lifecycle::Closing, Action::Kill),
                (Event::ServerEnded(String::new()), Lifecycle::Closing, Action::Nothing),
                (Event::Changed, Lifecycle::Closing, Action::Nothing),
            ],
        );
    }

    #[test]
    fn the_page_says_whether_a_server_runs() {
        let title = |state: &Lifecycle| state.shown().title;
        assert!(title(&failed(Beside::Nothing)).contains("no server runs"));
        assert!(title(&failed(Beside::Running)).contains("goes on"));
        assert_eq!(failed(Beside::Running).shown().text, "error");
        assert_eq!(Lifecycle::Running.shown(), Shown { phase: "running", title: "", text: "" });
    }
}
