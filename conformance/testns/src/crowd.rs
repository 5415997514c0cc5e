//! More ports than one would lay one by one.

use nix::libc;

use crate::Namespace;
use crate::must::Must;
use crate::netlink::{Body, Socket};

const RTM_NEWLINK: u16 = 16;
const IFLA_IFNAME: u16 = 3;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;

impl Namespace {
    /// Gives a bridge ports until it has `count`, in one go.
    ///
    /// # Panics
    /// When there is no such bridge, or it takes no more.
    #[track_caller]
    pub fn crowd_bridge(&self, bridge: &str, count: usize) {
        let master = self.link(bridge).index.to_ne_bytes();
        let there = self.links().iter().filter(|link| link.master.as_deref() == Some(bridge)).count();
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        self.enter(|| {
            let mut socket = Socket::route();
            for number in there..count {
                let name = format!("crowd{number}");
                let body = Body(vec![0; 16]).string(IFLA_IFNAME, &name).attribute(IFLA_MASTER, &master);
                let body = body.nest(IFLA_LINKINFO, |info| info.string(IFLA_INFO_KIND, "ifb"));
                let made = socket.request(RTM_NEWLINK, flags, &body.0);
                made.must(format_args!("make {name} a port of {bridge}"));
            }
        });
    }
}
