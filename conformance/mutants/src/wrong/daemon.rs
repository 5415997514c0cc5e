//! A plugin that needs a daemon: dhcp.

use super::del::wants;
use crate::Act;
use skel::cni_spec::Command::{Check, Status};
use std::os::unix::net::UnixStream;
use std::path::Path;

pub(super) const ACTS: &[Act] = &[
    ("is-ready-without-its-daemon", |call| call.does_nothing_if(call.is(Status) && !has_daemon())),
    ("checks-without-its-daemon", |call| call.does_nothing_if(call.is(Check) && !has_daemon())),
    ("wants-its-daemon-to-delete", |call| wants(call, |_, _| !has_daemon())),
    ("starts-where-no-socket-is-only", crate::MutantCall::honest),
];

/// The socket on which the daemon of the kit's profile listens.
const SOCKET: &str = "/run/cni/dhcp.sock";

/// Whether a mutant's daemon starts, by the words of its command line.
pub(crate) fn starts(mutant: &str, words: &[String]) -> bool {
    let is_daemon = words.get(1).is_some_and(|word| word == "daemon");
    mutant != "starts-where-no-socket-is-only" || !is_daemon || !Path::new(SOCKET).exists()
}

fn has_daemon() -> bool {
    UnixStream::connect(SOCKET).is_ok()
}
