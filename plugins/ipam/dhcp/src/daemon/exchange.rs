//! Messages between a link and its servers.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use netops::error::Result as OpResult;
use netops::packet::LinkUdp;
use socket2::Socket;

use super::clock::sleep_until;
use super::open_link::{OpenLink, SERVER_PORT};
use crate::client::To;
use crate::message::Incoming;

/// How long an answer is listened for after a message. A socket that stayed open would keep the namespace alive.
pub(super) const LISTENS: Duration = Duration::from_secs(10);

/// A link that messages are exchanged on.
pub(super) struct Exchange {
    pub(super) open_link: OpenLink,
    udp: LinkUdp,
    /// The packet socket that receives the answer that `udp` reads, too.
    renewing: Option<Socket>,
}

impl Exchange {
    pub(super) fn open(open_link: OpenLink) -> OpResult<Self> {
        let udp = open_link.listen()?;
        Ok(Self { open_link, udp, renewing: None })
    }

    /// Sends a message from the link; to one server by the namespace's routes, if they lead there.
    pub(super) fn send(&mut self, to: To, bytes: &[u8]) -> Result<(), String> {
        let all = SocketAddrV4::new(Ipv4Addr::BROADCAST, SERVER_PORT);
        let (from, to) = match to {
            To::Anyone => (Ipv4Addr::UNSPECIFIED, all),
            To::Everyone(from) => (from, all),
            To::Server { from, server } => match self.open_link.send(from, server, bytes) {
                Ok(socket) => {
                    self.renewing = Some(socket);
                    return Ok(());
                }
                Err(why) => {
                    tracing::debug!(why, "the message goes to all stations instead");
                    (from, SocketAddrV4::new(server, SERVER_PORT))
                }
            },
        };
        self.udp.send(from, to, bytes).map_err(|error| error.to_string())
    }
}

/// The next message for the link; `None` when it is time to close the link, or the link cannot receive.
pub(super) async fn receive(exchange: Option<&Exchange>, until: Duration, mac: [u8; 6]) -> Option<Incoming> {
    let Some(Exchange { udp, .. }) = exchange else { return std::future::pending().await };
    let message = async {
        loop {
            match udp.receive().await {
                Ok(datagram) => {
                    if let Some(message) = Incoming::decode(&datagram.payload, mac) {
                        return Some(message);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "the link does not receive");
                    return None;
                }
            }
        }
    };
    tokio::select! {
        message = message => message,
        () = sleep_until(until) => None,
    }
}
