//! `podman run -p`: a port of podman's default network.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use testns::Namespace;

use crate::engine::Podman;
use crate::leftovers::assert_nothing_left;

/// The page that httpd in the container serves.
pub(crate) const PAGE: &str = "a page of the container\n";

/// The node at its own addresses and a machine elsewhere reach the container's port through the node's.
#[test]
fn a_published_port_reaches_the_container() {
    let Some(podman) = Podman::or_skip() else { return };
    let outside = podman.node.remote("outside");
    podman.node.host().add_veth("uplink", &outside, "uplink");
    for (machine, address) in [(podman.node.host(), "192.0.2.1/24"), (&outside, "192.0.2.2/24")] {
        machine.add_address("uplink", address);
        machine.set_up("uplink");
    }
    podman.node.host().wait_for_addresses();
    podman.node.remember();
    let ways = |podman: &Podman| {
        let host = podman.node.host().clone();
        [
            fetch(&host, Ipv4Addr::new(10, 88, 0, 1)),
            fetch(&host, Ipv4Addr::LOCALHOST),
            fetch(&outside, Ipv4Addr::new(192, 0, 2, 1)),
        ]
    };
    assert_nothing_left(&podman, |podman| {
        let container = podman.start(&["-p", "8080:80"]);
        container.exec(&["httpd", "-p", "80", "-h", "/www"]); // goes to the background when it listens
        assert_eq!(podman.ok(&["port", &container.id]), "80/tcp -> 0.0.0.0:8080");
        for page in ways(podman) {
            assert_eq!(page.as_deref(), Ok(PAGE));
        }
        container.remove();
        for page in ways(podman) {
            assert!(page.is_err(), "{page:?}");
        }
        vec![container.id.clone(), container.address("podman"), "8080".to_owned()]
    });
}

/// The page that `node`, seen from `from`, has on its port 8080.
fn fetch(from: &Namespace, node: Ipv4Addr) -> Result<String, String> {
    const PATIENCE: Duration = Duration::from_secs(5);
    from.enter(|| {
        let mut stream = TcpStream::connect_timeout(&SocketAddr::from((node, 8080)), PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n")?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply)
    })
    .map(|reply| reply.split_once("\r\n\r\n").map(|(_, page)| page.to_owned()).unwrap_or(reply))
    .map_err(|error: std::io::Error| error.to_string())
}
