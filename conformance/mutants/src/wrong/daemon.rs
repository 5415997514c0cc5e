//! A plugin that needs a daemon: dhcp.

use super::del::wants;
use crate::Mutant;
use skel::cni_spec::Command::{Check, Status};
use std::os::unix::net::UnixStream;
use std::path::Path;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new("dhcp", "status.not-ready", "is-ready-without-its-daemon", |call| {
        call.does_nothing_if(call.is(Status) && !has_daemon())
    })
    .with(&["daemon-away"]),
    Mutant::new("dhcp", "check.notices-a-missing-daemon", "checks-without-its-daemon", |call| {
        call.does_nothing_if(call.is(Check) && !has_daemon())
    }),
    Mutant::new("dhcp", "del.bears-lost-state", "wants-its-daemon-to-delete", |call| wants(call, |_, _| !has_daemon()))
        .with(&["daemon"]),
    Mutant::new("dhcp", "relied.daemon-starts-again", "starts-where-no-socket-is-only", crate::MutantCall::honest)
        .starting(|words| words.get(1).is_none_or(|word| word != "daemon") || !Path::new(SOCKET).exists()),
];

/// The socket on which the daemon of the kit's profile listens.
const SOCKET: &str = "/run/cni/dhcp.sock";

fn has_daemon() -> bool {
    UnixStream::connect(SOCKET).is_ok()
}
