//! Queueing disciplines as the kernel shows them.

use crate::link::{name_of, names};
use crate::netlink::{Attributes, Socket, u32_at};

const RTM_GETQDISC: u16 = 38;
const TCMSG: usize = 20;

/// Queueing disciplines of the thread's namespace, a line each.
pub(crate) fn qdiscs() -> Vec<String> {
    // A kernel without traffic control says EOPNOTSUPP.
    let dump = Socket::route().dump(RTM_GETQDISC, &[0; TCMSG]).unwrap_or_default();
    let names = names();
    let line = |body: &[u8]| {
        let kind = Attributes::after(body, TCMSG).string(1).unwrap_or_default();
        let link = name_of(&names, u32_at(body, 4));
        let (handle, parent) = (u32_at(body, 8), u32_at(body, 12));
        format!("qdisc {kind} {handle:x} on {link} parent {parent:x}")
    };
    dump.iter().map(|message| line(&message.body)).collect()
}
