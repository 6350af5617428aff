//! `dunlin dev`: builds a game and runs it, and does both again when one of its files changes.
//!
//! The page gets what happens from a server of its own ([`page`]), which only this command starts: neither the game's
//! server nor the files of the page know of it.

mod build;
mod lifecycle;
mod page;
mod process;
mod watched_files;

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use clap::Args;
use dunlin_config::ConfigInput;
use tokio::{net::TcpListener, time::MissedTickBehavior};

use super::{Failure, output};
use crate::serve::{DEVELOPMENT_END_MAX, DEVELOPMENT_LISTENING, Signals};
use build::{Build, Built};
use lifecycle::{Action, Beside, Event, Lifecycle, Shown};
use page::Page;
use process::Process;
use watched_files::Sources;

/// Time between two looks at the files and at the processes.
const INTERVAL: Duration = Duration::from_millis(50);

/// A server or a build that has not ended this long after SIGTERM is killed.
const END_TIMEOUT: Duration = DEVELOPMENT_END_MAX.saturating_add(Duration::from_secs(10));

/// Maximum time that the end of a killed process is awaited.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);

/// Where the rooms wait while the server is replaced.
const ROOMS: &str = "target/dunlin-dev/rooms";

/// The variable that allows the page to connect, whatever the configuration allows.
const ORIGINS: &str = "DUNLIN_CLIENT_ALLOWED_ORIGINS";

/// Build a game and run it, again after each change. The rooms and the players in them stay.
#[derive(Debug, Args)]
pub(super) struct DevArgs {
    /// Configuration of the game's server
    #[arg(short = 'c', long = "config", value_name = "FILE", default_value = "config.json")]
    config: PathBuf,
    /// TCP port of the page, on the loopback address
    #[arg(long, value_name = "PORT", default_value_t = 3000)]
    page_port: u16,
    /// Build with optimization
    #[arg(long)]
    release: bool,
}

pub(super) fn run(args: &DevArgs) -> Result<(), Failure> {
    check_folder(Path::new("."), &args.config)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
    runtime.block_on(develop(args))
}

/// Checks that this is the folder of a game.
fn check_folder(folder: &Path, config: &Path) -> Result<(), Failure> {
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    if !manifest.contains("dunlin-game") {
        let text = "this is not the folder of a game: there is no Cargo.toml here that names dunlin-game. Go to the folder \
                    that `dunlin new-game` has written, or write one";
        return Err(Failure::Usage(text.into()));
    }
    for (path, what) in [(config, "the configuration of the game's server"), (Path::new("page/index.html"), "the page")]
    {
        if !folder.join(path).is_file() {
            return Err(Failure::Usage(format!("{} is missing here: it is {what}", path.display())));
        }
    }
    Ok(())
}

async fn develop(args: &DevArgs) -> Result<(), Failure> {
    let mut signals = Signals::new().map_err(Failure::Runtime)?;
    let page = Arc::new(Page::new("page".into()));
    let listener = listen(args.page_port).await?;
    let port = listener.local_addr().map_err(Failure::Runtime)?.port();
    tokio::spawn(page::serve(listener, Arc::clone(&page)));
    output::line(format_args!(
        "dunlin dev: the page is http://localhost:{port}/ and follows your changes; Ctrl-C ends"
    ))?;
    let mut dev = Dev::begin(args, port, page)?;
    let mut looks = tokio::time::interval(INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = looks.tick() => dev.step(),
            _ = signals.next() => break,
        }
    }
    let begun = Instant::now();
    dev.on(Event::Stop);
    dev.show();
    output::error_line("dunlin dev: ends with its server; another Ctrl-C ends both at once");
    loop {
        tokio::select! {
            _ = looks.tick() => dev.step(),
            _ = signals.next_after(begun) => {
                dev.signal_all(libc::SIGKILL);
                return Ok(());
            }
        }
        if dev.is_over() || begun.elapsed() > END_TIMEOUT + KILL_TIMEOUT {
            return Ok(());
        }
    }
}

async fn listen(port: u16) -> Result<TcpListener, Failure> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Failure::Usage(format!(
            "port {port} is in use, perhaps by another `dunlin dev`: end it, or choose another port with --page-port"
        )),
        _ => Failure::Usage(format!("the page cannot be served on port {port}: {error}")),
    })
}

/// The processes and the files, for [`Lifecycle`], which decides.
struct Dev<'a> {
    args: &'a DevArgs,
    port: u16,
    page: Arc<Page>,
    sources: Sources,
    lifecycle: Lifecycle,
    /// Whether a file has changed since the last build has begun.
    is_stale: bool,
    build: Option<Build>,
    /// What the last build that succeeded has made.
    program: PathBuf,
    server: Option<Server>,
    /// When something was told to end.
    told: Option<Instant>,
    /// Why changes cannot be seen, if so.
    unseen: Option<String>,
    /// Why the program could not be started, if so.
    not_started: Option<String>,
}

/// The game's server.
struct Server {
    process: Process,
    is_listening: Arc<AtomicBool>,
    made_from: MadeFrom,
}

/// What a server was started from. Another one is the same if this is.
#[derive(Debug, PartialEq, Eq)]
struct MadeFrom {
    program: PathBuf,
    /// The number of the file, its size, and when it was written.
    file: Option<(u64, u64, SystemTime)>,
    configuration: Vec<u8>,
}

impl MadeFrom {
    fn new(program: &Path, config: &Path) -> Self {
        let metadata = fs::metadata(program).ok();
        Self {
            program: program.to_owned(),
            file: metadata.and_then(|file| Some((file.ino(), file.len(), file.modified().ok()?))),
            configuration: fs::read(config).unwrap_or_default(),
        }
    }
}

impl<'a> Dev<'a> {
    /// Begins the first build.
    fn begin(args: &'a DevArgs, port: u16, page: Arc<Page>) -> Result<Self, Failure> {
        let sources = Sources::new(Path::new("."), &written_paths(&args.config))?;
        Ok(Self {
            build: Some(Build::start(args.release)?),
            args,
            port,
            page,
            sources,
            lifecycle: Lifecycle::Building(Beside::Nothing),
            is_stale: false,
            program: PathBuf::new(),
            server: None,
            told: None,
            unseen: None,
            not_started: None,
        })
    }

    /// Looks at the files and the processes, and does what follows.
    fn step(&mut self) {
        if let Some(built) = self.build.as_mut().and_then(Build::ended) {
            self.build = None;
            self.built(built);
        }
        self.look_at_server();
        self.look_at_files();
        if self.told.is_some_and(|told| told.elapsed() > END_TIMEOUT) {
            self.on(Event::Late);
        }
        self.on(Event::Again);
        if self.is_stale && !self.lifecycle.is_busy() {
            self.is_stale = false;
            self.on(Event::Changed);
        }
        self.show();
    }

    fn built(&mut self, built: Built) {
        match built {
            Built::Program(program) => {
                let now = MadeFrom::new(&program, &self.args.config);
                let differs = self.server.as_ref().is_none_or(|server| server.made_from != now);
                if !differs {
                    output::error_line(
                        "dunlin dev: neither the program nor its configuration differs; its server goes on",
                    );
                }
                self.program = program;
                self.on(Event::Built { differs });
            }
            Built::Failed(text) => self.on(Event::BuildFailed(text)),
        }
    }

    fn look_at_server(&mut self) {
        let Some(server) = &mut self.server else { return };
        if let Some(status) = server.process.ended() {
            let text = format!("The server has ended ({status}). Its last lines:\n\n{}", server.process.text());
            if self.told.is_none() {
                output::error_line(format_args!("dunlin dev: the server has ended ({status})"));
            }
            self.server = None;
            self.on(Event::ServerEnded(text));
        } else if server.is_listening.swap(false, Ordering::Relaxed) {
            self.on(Event::Listening);
        }
    }

    fn look_at_files(&mut self) {
        match self.sources.look() {
            Ok(changes) => {
                self.unseen = None;
                if changes.page {
                    self.page.reload();
                }
                if changes.sources {
                    self.is_stale = true;
                    self.sources.skip(&written_paths(&self.args.config));
                }
            }
            Err(failure) => {
                let text = failure.to_string();
                if self.unseen.as_ref() != Some(&text) {
                    output::error_line(format_args!("dunlin dev: changes are not seen: {text}"));
                    self.unseen = Some(text);
                }
            }
        }
    }

    fn on(&mut self, event: Event) {
        match self.lifecycle.on(event) {
            Action::Nothing => {}
            Action::Build => match Build::start(self.args.release) {
                Ok(build) => self.build = Some(build),
                Err(failure) => self.on(Event::BuildFailed(failure.to_string())),
            },
            Action::Start => {
                self.told = None;
                self.start();
            }
            Action::EndServer | Action::EndAll => {
                self.told = Some(Instant::now());
                self.signal_all(libc::SIGTERM);
            }
            Action::Kill => self.signal_all(libc::SIGKILL),
        }
    }

    fn start(&mut self) {
        match self.server_of_program() {
            Ok(server) => (self.server, self.not_started) = (Some(server), None),
            Err(error) => {
                let text = format!("{}: {error}", self.program.display());
                // It is tried again with each look.
                if self.not_started.as_ref() != Some(&text) {
                    output::error_line(format_args!("dunlin dev: the server cannot be started: {text}"));
                    self.not_started = Some(text.clone());
                }
                self.on(Event::NotStarted(text));
            }
        }
    }

    fn server_of_program(&self) -> io::Result<Server> {
        let mut command = Command::new(&self.program);
        command.arg("serve").arg("-c").arg(&self.args.config).args(["--keep-rooms", ROOMS]);
        if std::env::var_os(ORIGINS).is_none() {
            let port = self.port;
            command.env(ORIGINS, format!("http://localhost:{port} http://127.0.0.1:{port}"));
        }
        let made_from = MadeFrom::new(&self.program, &self.args.config);
        let is_listening = Arc::new(AtomicBool::new(false));
        let of_reader = Arc::clone(&is_listening);
        let take = move |line: &str| {
            let says_so = line == DEVELOPMENT_LISTENING;
            of_reader.fetch_or(says_so, Ordering::Relaxed);
            says_so
        };
        Ok(Server { process: Process::start(&mut command, take)?, is_listening, made_from })
    }

    /// Signals what runs. No build runs while a server is replaced.
    fn signal_all(&self, signal: libc::c_int) {
        if let Some(build) = &self.build {
            build.signal(signal);
        }
        if let Some(server) = &self.server {
            server.process.signal(signal);
        }
    }

    fn show(&self) {
        let shown = match &self.unseen {
            Some(text) => Shown { phase: "failed", title: "Changes are not seen.", text },
            None => self.lifecycle.shown(),
        };
        self.page.show(shown);
    }

    fn is_over(&self) -> bool {
        self.build.is_none() && self.server.is_none()
    }
}

/// What the server writes is not part of the game.
fn written_paths(config: &Path) -> Vec<PathBuf> {
    // The server says what is wrong with the configuration.
    ConfigInput::read(Some(config), Vec::new()).map(|input| input.written_paths()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_folders_are_refused_with_a_remedy() {
        let folder = std::env::temp_dir().join(format!("dunlin-dev-folder-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("page")).expect("a folder");
        let refused = |folder: &Path| match check_folder(folder, Path::new("config.json")) {
            Err(Failure::Usage(text)) => text,
            other => panic!("{other:?}"),
        };
        assert!(refused(&folder).contains("`dunlin new-game`"));
        std::fs::write(folder.join("Cargo.toml"), "[package]\n").expect("a file");
        assert!(refused(&folder).contains("not the folder of a game"));
        std::fs::write(folder.join("Cargo.toml"), "[dependencies]\ndunlin-game = {}\n").expect("a file");
        assert_eq!(refused(&folder), "config.json is missing here: it is the configuration of the game's server");
        std::fs::write(folder.join("config.json"), "{}").expect("a file");
        assert_eq!(refused(&folder), "page/index.html is missing here: it is the page");
        std::fs::write(folder.join("page/index.html"), "").expect("a file");
        assert!(check_folder(&folder, Path::new("config.json")).is_ok());
        std::fs::remove_dir_all(folder).expect("it is removed");
    }

    #[tokio::test]
    async fn a_taken_port_is_refused_with_a_remedy() {
        let taken = listen(0).await.expect("a free port");
        let port = taken.local_addr().expect("an address").port();
        match listen(port).await {
            Err(Failure::Usage(text)) => assert!(text.contains("--page-port"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}
