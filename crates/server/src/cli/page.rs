//! What the commands have in common that serve a page to browsers of this machine.

use std::{io, net::SocketAddr};

use axum::Router;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use super::{Failure, output};

/// Files of all these pages. A page names them by their paths in the source tree, such as `../../page/dom.js`, which its tests
/// need: for a browser, the folder above `/` is `/` again.
pub(super) const SHARED: [(&str, &str); 2] =
    [("/page/base.css", include_str!("page/base.css")), ("/page/dom.js", include_str!("page/dom.js"))];

/// Serves the page of a command until the process is told to end.
pub(super) fn serve(command: &str, address: SocketAddr, router: Router) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Runtime)?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Runtime)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Runtime)?;
        let listener = listen(address).await?;
        print_address(command, listener.local_addr().map_err(Failure::Runtime)?)?;
        tokio::spawn(async move { axum::serve(listener, router).await });
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    })
}

async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            Failure::Usage(format!("port {} is in use: choose another port with --port", address.port()))
        }
        _ => Failure::Usage(format!("the page cannot be served at {address}: {error}")),
    })
}

/// Says where the page of a command is.
pub(super) fn print_address(command: &str, address: SocketAddr) -> Result<(), Failure> {
    let host = if address.is_ipv4() { "localhost" } else { "[::1]" };
    output::line(format_args!("dunlin {command}: the page is http://{host}:{}/; Ctrl-C ends", address.port()))
}

#[cfg(test)]
pub(super) mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// A file that is missing in the list would be found by no browser but one that opens the page.
    pub(in crate::cli) fn assert_has_files_of(folder: &str, files: &[(&str, &str)]) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let expected: BTreeSet<_> = fs::read_dir(folder)
            .expect("the page is there")
            .map(|entry| format!("/{}", entry.expect("an entry").file_name().to_string_lossy()))
            .collect();
        assert_eq!(files.iter().map(|(path, _)| (*path).to_owned()).collect::<BTreeSet<_>>(), expected);
    }

    #[test]
    fn each_file_that_pages_share_is_in_the_program() {
        let files = SHARED.map(|(path, text)| (path.strip_prefix("/page").expect("their folder"), text));
        assert_has_files_of("src/cli/page", &files);
    }
}
