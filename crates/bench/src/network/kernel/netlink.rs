//! Two netlink requests to the kernel: the state of a TCP connection (sock_diag(7)), and the interface on the route
//! to an address (rtnetlink(7)). Both use the kernel's binary messages in this machine's byte order. Answers are
//! parsed within bounds.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

use super::{CONGESTION_NAME_MAX, TcpState};

const HEADER_BYTES: usize = 16;
const ANSWER_BYTES_MAX: usize = 8192;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_MSG_BYTES: usize = 72;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const RTM_GETROUTE: u16 = 26;
const RTMSG_BYTES: usize = 12;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const FAMILY_IPV4: u8 = 2;
const FAMILY_IPV6: u8 = 10;
const TCP: u8 = 6;

/// Returns the state of the connection between two addresses; `None`: the kernel does not reveal it.
pub(super) fn tcp_state(local: SocketAddr, remote: SocketAddr) -> Option<TcpState> {
    let answer = ask(SOCK_DIAG, SOCK_DIAG_BY_FAMILY, &diag_request(local, remote)?)?;
    tcp_state_of(body(&answer, SOCK_DIAG_BY_FAMILY)?)
}

/// Returns the number of the interface on the route to an address; `None`: there is no route.
pub(super) fn interface_to(address: IpAddr) -> Option<u32> {
    // Family 0 is NETLINK_ROUTE. The type of its answer is that of the request minus two: RTM_NEWROUTE.
    let answer = ask_of_family(None, RTM_GETROUTE, &route_request(address))?;
    interface_of(body(&answer, RTM_GETROUTE - 2)?)
}

fn ask(protocol: Protocol, kind: u16, question: &[u8]) -> Option<Vec<u8>> {
    ask_of_family(Some(protocol), kind, question)
}

fn ask_of_family(protocol: Option<Protocol>, kind: u16, question: &[u8]) -> Option<Vec<u8>> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol).ok()?;
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(1))).ok()?;
    let length = u32::try_from(HEADER_BYTES + question.len()).ok()?;
    let mut message = Vec::with_capacity(HEADER_BYTES + question.len());
    message.extend(length.to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]); // sequence number and port: this socket has one request only
    message.extend(question);
    sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).ok()?;
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let (received, _) = recv(&socket, &mut answer[..], RecvFlags::empty()).ok()?;
    answer.truncate(received);
    Some(answer)
}

/// Returns the body of an answer's first message, if it has the expected type and is no error.
fn body(answer: &[u8], wanted: u16) -> Option<&[u8]> {
    let length = u32_at(answer, 0)? as usize;
    let kind = u16_at(answer, 4)?;
    (kind == wanted && kind != NLMSG_ERROR).then(|| answer.get(HEADER_BYTES..length)).flatten()
}

/// `struct inet_diag_req_v2`.
fn diag_request(local: SocketAddr, remote: SocketAddr) -> Option<Vec<u8>> {
    let family = if local.is_ipv4() { FAMILY_IPV4 } else { FAMILY_IPV6 };
    if local.is_ipv4() != remote.is_ipv4() {
        return None;
    }
    let wanted = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1);
    let mut request = vec![family, TCP, wanted, 0];
    request.extend(u32::MAX.to_ne_bytes()); // in all states
    request.extend(local.port().to_be_bytes());
    request.extend(remote.port().to_be_bytes());
    for address in [local.ip(), remote.ip()] {
        let mut words = [0; 16];
        match address {
            IpAddr::V4(address) => words[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => words.copy_from_slice(&address.octets()),
        }
        request.extend(words);
    }
    request.extend(scope_of(local).to_ne_bytes());
    request.extend([0xff; 8]); // no cookie
    Some(request)
}

/// The interface number distinguishes addresses of one link.
fn scope_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}

/// Parses `struct inet_diag_msg` and its attributes. Offsets in `struct tcp_info` are those of linux/tcp.h, which
/// only grows.
fn tcp_state_of(body: &[u8]) -> Option<TcpState> {
    let attributes = body.get(INET_DIAG_MSG_BYTES..)?;
    let info = attribute(attributes, INET_DIAG_INFO)?;
    let name = attribute(attributes, INET_DIAG_CONG).unwrap_or_default();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let name: String = name
        .iter()
        .take(CONGESTION_NAME_MAX)
        .filter(|byte| byte.is_ascii_graphic())
        .map(|byte| char::from(*byte))
        .collect();
    Some(TcpState {
        retransmitted: u32_at(info, 100)?,
        sent: u32_at(info, 136).unwrap_or(0),
        segment_bytes: u32_at(info, 16)?,
        round_trip_us: u32_at(info, 68)?,
        window_segments: u32_at(info, 80)?,
        congestion: name,
    })
}

/// `struct rtmsg` and the address.
fn route_request(address: IpAddr) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (FAMILY_IPV4, address.octets().to_vec()),
        IpAddr::V6(address) => (FAMILY_IPV6, address.octets().to_vec()),
    };
    let bits = u8::try_from(octets.len() * 8).unwrap_or(0);
    let mut request = vec![family, bits];
    request.resize(RTMSG_BYTES, 0);
    request.extend(u16::try_from(4 + octets.len()).unwrap_or(0).to_ne_bytes());
    request.extend(RTA_DST.to_ne_bytes());
    request.extend(octets);
    request
}

fn interface_of(body: &[u8]) -> Option<u32> {
    u32_at(attribute(body.get(RTMSG_BYTES..)?, RTA_OIF)?, 0)
}

/// Returns the first attribute of a kind. Each has its length, its kind and its bytes, and begins at a multiple of
/// four.
fn attribute(mut bytes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(u16_at(bytes, 0)?);
        let value = bytes.get(4..length)?;
        if u16_at(bytes, 2)? == wanted {
            return Some(value);
        }
        bytes = bytes.get(length.next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_kernel_reveals_the_state_of_a_connection() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (local, remote) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
            let state = tcp_state(local, remote).unwrap();
            assert_eq!(state.retransmitted, 0);
            assert!(state.segment_bytes > 500 && !state.congestion.is_empty(), "{state:?}");
            // With the addresses exchanged, it is the other end of the same connection, which is not accepted yet.
            assert_eq!(tcp_state(local, SocketAddr::new(remote.ip(), 1)), None);
        }
        assert_eq!(tcp_state("127.0.0.1:1".parse().unwrap(), "[::1]:1".parse().unwrap()), None);
    }

    #[test]
    fn the_route_to_this_machine_is_its_loopback() {
        assert_eq!(interface_to(Ipv4Addr::LOCALHOST.into()), Some(1));
        assert_eq!(interface_to(Ipv6Addr::LOCALHOST.into()), Some(1));
    }

    #[test]
    fn attributes_are_found_behind_others() {
        let bytes = [5, 0, 7, 0, 1, 0, 0, 0, 8, 0, 4, 0, 9, 0, 0, 0];
        assert_eq!(attribute(&bytes, 7), Some(&[1][..]));
        assert_eq!(attribute(&bytes, 4), Some(&[9, 0, 0, 0][..]));
        assert_eq!(attribute(&bytes, 5), None);
        // Lengths that would not advance, or lead out of the bytes.
        assert_eq!(attribute(&[0, 0, 1, 0, 0, 0, 0, 0], 2), None);
        assert_eq!(attribute(&[99, 0, 1, 0], 1), None);
    }

    proptest! {
        #[test]
        fn any_answer_is_parsed_without_a_panic(bytes: Vec<u8>, kind: u16) {
            let _ = body(&bytes, kind).map(|body| (tcp_state_of(body), interface_of(body)));
            let _ = (tcp_state_of(&bytes), interface_of(&bytes), attribute(&bytes, kind));
        }
    }
}
