//! Queueing disciplines as the kernel shows them.

use nix::errno::Errno;
use nix::libc;

use crate::Namespace;
use crate::link::Names;
use crate::must::Must;
use crate::netlink::{Attributes, Body, Socket, u32_at};

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const TCMSG: usize = 20;
const TC_H_ROOT: u32 = 0xffff_ffff;

impl Namespace {
    /// Takes the queueing disciplines from a link, those of ingress too, so that it has what a new one has.
    ///
    /// # Panics
    /// When there is no such link, or the kernel refuses.
    #[track_caller]
    pub fn clear_qdiscs(&self, link: &str) {
        const TC_H_INGRESS: u32 = 0xffff_fff1;
        let index = self.link(link).index;
        for parent in [TC_H_ROOT, TC_H_INGRESS] {
            // struct tcmsg: family and padding, the link, a handle of none in particular, the parent, more.
            let message = [0, index, 0, parent, 0].map(u32::to_ne_bytes).concat();
            match self.enter(|| Socket::route().request(RTM_DELQDISC, 0, &message)) {
                // There is none, or only the one that the kernel gives.
                Err(Errno::ENOENT | Errno::EINVAL) => {}
                done => done.must(format_args!("clear the queueing disciplines of {link}")),
            }
        }
    }
}

/// Whether the kernel puts a queueing discipline of that kind on the loopback link of the thread's namespace.
pub(crate) fn try_qdisc(kind: &str) -> bool {
    const TCA_KIND: u16 = 1;
    const LOOPBACK: u32 = 1;
    let message = [0, LOOPBACK, 0, TC_H_ROOT, 0].map(u32::to_ne_bytes).concat();
    let body = Body(message).string(TCA_KIND, kind);
    Socket::route().request(RTM_NEWQDISC, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &body.0).is_ok()
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
