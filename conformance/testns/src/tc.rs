//! Queueing disciplines as the kernel shows them.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use nix::errno::Errno;

use crate::Namespace;
use crate::link::Names;
use crate::must::Must;
use crate::netlink::{Attributes, NEW, Socket, u32_at};

const RTM_GETQDISC: u16 = 38;
const TCMSG: usize = 20;

impl Namespace {
    /// Takes the queueing disciplines from a link, those of ingress too, so that it has what a new one has.
    #[track_caller]
    pub fn clear_qdiscs(&self, link: &str) {
        let index = self.link(link).index;
        self.step("tc", format_args!("qdisc del dev {link} root"));
        self.step("tc", format_args!("qdisc del dev {link} ingress"));
        for parent in [TcHandle::ROOT, TcHandle::INGRESS] {
            let message = RouteNetlinkMessage::DelQueueDiscipline(qdisc(index, parent));
            match self.enter(|| Socket::route().request(0, &message)) {
                // There is none, or only the one that the kernel gives.
                Err(Errno::ENOENT | Errno::EINVAL) => {}
                done => done.must(format_args!("clear the queueing disciplines of {link}")),
            }
        }
    }
}

/// Whether the kernel puts a queueing discipline of that kind on the loopback link of the thread's namespace.
pub(crate) fn try_qdisc(kind: &str) -> bool {
    const LOOPBACK: u32 = 1;
    let mut message = qdisc(LOOPBACK, TcHandle::ROOT);
    message.attributes.push(TcAttribute::Kind(kind.to_owned()));
    Socket::route().request(NEW, &RouteNetlinkMessage::NewQueueDiscipline(message)).is_ok()
}

fn qdisc(index: u32, parent: TcHandle) -> TcMessage {
    let mut message = TcMessage::with_index(index.cast_signed());
    message.header.parent = parent;
    message
}

/// Queueing disciplines of the thread's namespace, a line each.
pub(crate) fn qdiscs(names: &Names) -> Vec<String> {
    // A kernel without traffic control says EOPNOTSUPP.
    let dump = Socket::route().dump(RTM_GETQDISC, &[0; TCMSG]).unwrap_or_default();
    let line = |body: &[u8]| {
        let kind = Attributes::after(body, TCMSG).string(1).unwrap_or_default();
        let link = names.get(u32_at(body, 4));
        let (handle, parent) = (u32_at(body, 8), u32_at(body, 12));
        format!("qdisc {kind} {handle:x} on {link} parent {parent:x}")
    };
    dump.iter().map(|message| line(&message.body)).collect()
}
