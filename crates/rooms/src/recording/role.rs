//! A visitor's role and address, in recordings and in the logs of rooms.
//!
//! One byte: bit 0 is set for a spectator; the other bits are 0 without an address, 1 for IPv4, 2 for IPv6. The address
//! follows, in network order. Without an address, the byte is the same as in versions without addresses.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Appends the role of a visitor, and its address.
pub fn put_role(is_spectator: bool, address: Option<IpAddr>, out: &mut Vec<u8>) {
    let kind = match address {
        None => 0,
        Some(IpAddr::V4(_)) => 1,
        Some(IpAddr::V6(_)) => 2,
    };
    out.push(u8::from(is_spectator) | kind << 1);
    match address {
        None => {}
        Some(IpAddr::V4(address)) => out.extend_from_slice(&address.octets()),
        Some(IpAddr::V6(address)) => out.extend_from_slice(&address.octets()),
    }
}

/// Reads what [`put_role`] wrote. `take` returns the next bytes. Returns `None` for an invalid byte.
///
/// # Errors
/// The error of `take`.
pub fn read_role<'a, E>(
    mut take: impl FnMut(usize) -> Result<&'a [u8], E>,
) -> Result<Option<(bool, Option<IpAddr>)>, E> {
    let byte = take(1)?.first().copied().unwrap_or(u8::MAX);
    let address = match byte >> 1 {
        0 => None,
        1 => <[u8; 4]>::try_from(take(4)?).ok().map(|octets| Ipv4Addr::from(octets).into()),
        2 => <[u8; 16]>::try_from(take(16)?).ok().map(|octets| Ipv6Addr::from(octets).into()),
        _ => return Ok(None),
    };
    Ok(Some((byte & 1 == 1, address)))
}
