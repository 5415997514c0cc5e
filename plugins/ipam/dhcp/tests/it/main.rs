//! Plugin and daemon against real DHCP servers, each in a throwaway namespace.

#![expect(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]
#![allow(missing_docs, reason = "a test's name is its documentation")]

mod lan;
mod server;

mod attach;
mod daemon;
mod exchange;
mod extras;
mod hostile;
mod lose;
mod many;
mod reference;
mod renew;
mod servers;
mod six;
mod socket;
