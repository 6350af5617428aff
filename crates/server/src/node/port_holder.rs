//! Names the process that listens on a port, from `/proc`.

use std::{
    collections::BTreeSet,
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

/// State of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// The process that listens on this TCP address, or on its port of every address, as name and id. `None` if it is of another
/// user, or in another container.
pub(super) fn holder_of(address: SocketAddr) -> Option<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    let sockets: BTreeSet<String> =
        lines.filter_map(|line| listening_socket(line, address)).map(|inode| format!("socket:[{inode}]")).collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut holders = processes.filter(|process| {
        let is_process =
            process.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        is_process && has_link(&process.path().join("fd"), &sockets)
    });
    let process = holders.next()?;
    let name = fs::read_to_string(process.path().join("comm")).ok()?;
    Some(format!("{} (process {})", name.trim(), process.file_name().to_string_lossy()))
}

/// The inode of a socket that keeps others from listening on `address`, from a line such as
/// `0: 0100007F:1F40 00000000:0000 0A … UID 0 INODE …`.
fn listening_socket(line: &str, address: SocketAddr) -> Option<&str> {
    let mut fields = line.split_ascii_whitespace();
    let (ip, port) = fields.nth(1)?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    let (ip, own) = (ip_of(ip)?, address.ip().to_canonical());
    let is_same = u16::from_str_radix(port, 16) == Ok(address.port())
        && (ip == own || ip.is_unspecified() || own.is_unspecified());
    let inode = fields.nth(5)?;
    (is_same && state == LISTENING).then_some(inode)
}

/// The kernel writes the address as words of 32 bits in the byte order of the machine.
fn ip_of(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    match hex.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (at, bytes) in bytes.chunks_exact_mut(4).enumerate() {
                bytes.copy_from_slice(&word(at)?);
            }
            Some(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical())
        }
        _ => None,
    }
}

fn has_link(descriptors: &Path, links: &BTreeSet<String>) -> bool {
    let Ok(descriptors) = fs::read_dir(descriptors) else { return false };
    let targets = descriptors.flatten().filter_map(|descriptor| fs::read_link(descriptor.path()).ok());
    targets.into_iter().any(|target| target.to_str().is_some_and(|target| links.contains(target)))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_process_that_listens_is_named() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let address = listener.local_addr().expect("bound");
        let every = SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port()));
        for address in [address, every] {
            let holder = holder_of(address).expect("it is this process");
            assert!(holder.ends_with(&format!("(process {})", std::process::id())), "{holder}");
        }
        let other = SocketAddr::from(([127, 0, 0, 2], address.port()));
        assert_eq!(holder_of(other), None, "the address is free");
    }

    #[test]
    fn lines_of_other_sockets_and_nonsense_name_none() {
        let loopback = u32::from_ne_bytes([127, 0, 0, 1]);
        let line = format!(
            "   0: {loopback:08X}:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0"
        );
        let listening = |line: &str, address: &str| {
            listening_socket(line, address.parse().expect("an address")).map(ToOwned::to_owned)
        };
        for same in ["127.0.0.1:8000", "0.0.0.0:8000", "[::]:8000", "[::ffff:127.0.0.1]:8000"] {
            assert_eq!(listening(&line, same).as_deref(), Some("4711"), "{same}");
        }
        for other in ["127.0.0.1:8001", "127.0.0.2:8000", "[::1]:8000"] {
            assert_eq!(listening(&line, other), None, "{other}");
        }
        assert_eq!(listening(&line.replace(" 0A ", " 01 "), "127.0.0.1:8000"), None);
        for text in ["", "a b", "0: x y 0A", "0: 1:zz y 0A 0 0 0 0 0 0", "0: 0100007é:1F40 y 0A 0 0 0 0 0 0"] {
            assert_eq!(listening(text, "127.0.0.1:8000"), None, "{text}");
        }
    }
}
