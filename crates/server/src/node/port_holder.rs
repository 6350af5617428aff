//! Names the process that listens on a port, from `/proc`.

use std::{fs, path::Path};

/// State of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// The process that listens on this TCP port, as name and id. `None` if it is of another user, or in another container.
pub(super) fn holder_of(port: u16) -> Option<String> {
    let socket = ["/proc/net/tcp", "/proc/net/tcp6"].iter().find_map(|table| {
        let text = fs::read_to_string(table).ok()?;
        text.lines().skip(1).find_map(|line| listening_socket(line, port)).map(ToOwned::to_owned)
    })?;
    let link = format!("socket:[{socket}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut holders = processes.filter(|process| {
        let is_process =
            process.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        is_process && has_link(&process.path().join("fd"), &link)
    });
    let process = holders.next()?;
    let name = fs::read_to_string(process.path().join("comm")).ok()?;
    Some(format!("{} (process {})", name.trim(), process.file_name().to_string_lossy()))
}

/// The inode of a socket that listens on `port`, from a line such as `0: 0100007F:1F40 00000000:0000 0A … UID 0 INODE …`.
fn listening_socket(line: &str, port: u16) -> Option<&str> {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    let state = fields.nth(1)?;
    let own = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
    let inode = fields.nth(5)?;
    (own == port && state == LISTENING).then_some(inode)
}

fn has_link(descriptors: &Path, link: &str) -> bool {
    let Ok(descriptors) = fs::read_dir(descriptors) else { return false };
    descriptors
        .flatten()
        .any(|descriptor| fs::read_link(descriptor.path()).is_ok_and(|target| target == Path::new(link)))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_process_that_listens_is_named() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let port = listener.local_addr().expect("bound").port();
        let holder = holder_of(port).expect("it is this process");
        assert!(holder.ends_with(&format!("(process {})", std::process::id())), "{holder}");
    }

    #[test]
    fn lines_of_other_sockets_and_nonsense_name_none() {
        let line = "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0";
        assert_eq!(listening_socket(line, 8000), Some("4711"));
        assert_eq!(listening_socket(line, 8001), None);
        assert_eq!(listening_socket(&line.replace(" 0A ", " 01 "), 8000), None);
        for text in ["", "a b", "0: x y 0A", "0: 1:zz y 0A 0 0 0 0 0 0"] {
            assert_eq!(listening_socket(text, 8000), None, "{text}");
        }
    }
}
