//! Plugin and daemon against real DHCP servers, each in a throwaway namespace.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]
#![allow(missing_docs, reason = "a test's name is its documentation")]

mod lan;
mod scripted_server;

mod daemon;
mod exchange;
mod hostile;
mod ipv6;
mod other_servers;
mod reference;
mod socket;
mod verbs;
