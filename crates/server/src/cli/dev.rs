//! `dunlin dev`: builds a game and runs it, and does both again when one of its files changes.
//!
//! The page gets what happens from a server of its own ([`page`]), which only this command starts: neither the game's
//! server nor the files of the page know of it.

mod build;
mod page;
mod process;
mod sources;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    time::MissedTickBehavior,
};

use super::{Failure, output};
use build::{Build, Built};
use page::{Page, Phase};
use process::Process;
use sources::{Change, Sources};

/// Time between two looks at the files and at the processes.
const INTERVAL: Duration = Duration::from_millis(150);

/// A server that has not ended this long after SIGTERM is killed.
const END_TIMEOUT: Duration = Duration::from_secs(10);

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
    let mut signals = (
        signal(SignalKind::interrupt()).map_err(Failure::Runtime)?,
        signal(SignalKind::terminate()).map_err(Failure::Runtime)?,
    );
    let page = Arc::new(Page::new("page".into()));
    let listener = listen(args.page_port).await?;
    let port = listener.local_addr().map_err(Failure::Runtime)?.port();
    tokio::spawn(page::serve(listener, Arc::clone(&page)));
    output::line(format_args!(
        "dunlin dev: the page is http://localhost:{port}/ and follows your changes; Ctrl-C ends"
    ))?;
    let mut dev = Dev {
        args,
        port,
        page,
        sources: Sources::new(".".into())?,
        is_stale: true,
        build: None,
        server: Server::Stopped,
    };
    let mut looks = tokio::time::interval(INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ended = loop {
        tokio::select! {
            _ = looks.tick() => if let Err(failure) = dev.step() { break Err(failure) },
            _ = signals.0.recv() => break Ok(()),
            _ = signals.1.recv() => break Ok(()),
        }
    };
    dev.end().await;
    ended
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

/// The game's server.
enum Server {
    /// It has not been started, or has ended on its own.
    Stopped,
    Running(Process),
    /// It was told to end, and the next one starts when it has.
    Ending {
        process: Process,
        since: Instant,
        next: PathBuf,
    },
}

struct Dev<'a> {
    args: &'a DevArgs,
    port: u16,
    page: Arc<Page>,
    sources: Sources,
    /// Whether a file has changed since the last build has begun.
    is_stale: bool,
    build: Option<Build>,
    server: Server,
}

impl Dev<'_> {
    /// Looks at the files and the processes, and does what follows.
    fn step(&mut self) -> Result<(), Failure> {
        match self.sources.look()? {
            Change::None => {}
            Change::Page => self.page.reload(),
            Change::Sources => self.is_stale = true,
        }
        self.step_build()?;
        self.step_server()
    }

    fn step_build(&mut self) -> Result<(), Failure> {
        if let Some(built) = self.build.as_mut().and_then(Build::ended) {
            self.build = None;
            match built {
                Built::Program(program) => self.replace(program)?,
                // The server that runs goes on, and so does the game.
                Built::Failed(text) => self.page.show(Phase::Failed, &text),
            }
        }
        if self.is_stale && self.build.is_none() {
            self.is_stale = false;
            self.page.show(Phase::Building, "");
            self.build = Some(Build::start(self.args.release)?);
        }
        Ok(())
    }

    /// Ends the running server, and starts this program then: two servers cannot have the same port and rooms.
    fn replace(&mut self, program: PathBuf) -> Result<(), Failure> {
        match std::mem::replace(&mut self.server, Server::Stopped) {
            Server::Stopped => self.start(&program),
            Server::Running(process) => {
                process.signal(libc::SIGTERM);
                self.server = Server::Ending { process, since: Instant::now(), next: program };
                Ok(())
            }
            Server::Ending { process, since, .. } => {
                self.server = Server::Ending { process, since, next: program };
                Ok(())
            }
        }
    }

    fn step_server(&mut self) -> Result<(), Failure> {
        match &mut self.server {
            Server::Stopped => {}
            Server::Running(process) => {
                if let Some(status) = process.ended() {
                    let text = format!("The server has ended ({status}). Its last lines:\n\n{}", process.text());
                    output::error_line(format_args!("dunlin dev: the server has ended ({status})"));
                    self.page.show(Phase::Ended, &text);
                    self.server = Server::Stopped;
                }
            }
            Server::Ending { process, since, next } => {
                if process.ended().is_some() {
                    let next = std::mem::take(next);
                    self.start(&next)?;
                } else if since.elapsed() > END_TIMEOUT {
                    process.signal(libc::SIGKILL);
                }
            }
        }
        Ok(())
    }

    fn start(&mut self, program: &Path) -> Result<(), Failure> {
        let mut command = Command::new(program);
        command.arg("serve").arg("-c").arg(&self.args.config).args(["--keep-rooms", ROOMS]);
        if std::env::var_os(ORIGINS).is_none() {
            let port = self.port;
            command.env(ORIGINS, format!("http://localhost:{port} http://127.0.0.1:{port}"));
        }
        let process = Process::start(&mut command);
        self.server = Server::Running(process.map_err(|error| Failure::File(program.to_owned(), error))?);
        self.page.show(Phase::Running, "");
        Ok(())
    }

    /// Ends what runs.
    async fn end(self) {
        let server = match self.server {
            Server::Stopped => None,
            Server::Running(process) | Server::Ending { process, .. } => Some(process),
        };
        for mut process in self.build.map(Build::into_process).into_iter().chain(server) {
            process.signal(libc::SIGTERM);
            let since = Instant::now();
            while process.ended().is_none() {
                if since.elapsed() > END_TIMEOUT {
                    process.signal(libc::SIGKILL);
                }
                tokio::time::sleep(INTERVAL).await;
            }
        }
    }
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
