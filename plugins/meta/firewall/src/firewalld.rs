//! firewalld, over D-Bus: an address is a source of a zone.
//!
//! rustbus adds a fifth of what zbus does to the executable, and needs no event loop. Its first exchange has no deadline, so
//! the connection is made on a thread of its own.

use std::fmt;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ipnetwork::IpNetwork;
use rustbus::connection::{Timeout, ll_conn::DuplexConn};
use rustbus::message_builder::{MarshalledMessage, MessageBuilder, MessageType};

const NAME: &str = "org.fedoraproject.FirewallD1";
const PATH: &str = "/org/fedoraproject/FirewallD1";
const ZONE: &str = "org.fedoraproject.FirewallD1.zone";
const BUS: &str = "org.freedesktop.DBus";
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// How long firewalld has for one call: it may load its whole ruleset.
const CALL_DEADLINE: Duration = Duration::from_secs(30);

pub(crate) struct Firewalld(DuplexConn);

/// A call of firewalld about a source of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Add,
    Remove,
    Query,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The change was done, or the zone has the source.
    Yes,
    /// There was nothing to do, or the zone does not have the source.
    No,
}

#[derive(Debug)]
pub(crate) enum CallError {
    /// firewalld, or the bus for it, refused: nothing was changed.
    Refused(String),
    /// The call has no answer, or none that can be read: the change may be done.
    NoAnswer(String),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Refused(why) | Self::NoAnswer(why)) = self;
        f.write_str(why)
    }
}

impl CallError {
    fn no_answer(error: impl fmt::Display) -> Self {
        Self::NoAnswer(error.to_string())
    }
}

impl Firewalld {
    /// Connects to the system bus, if there is one, and firewalld is on it, with zones of this network namespace.
    /// Errors: the system bus cannot be asked, as no thread can be made.
    pub(crate) fn find() -> Result<Option<Self>, std::io::Error> {
        let path = match rustbus::get_system_bus_path() {
            Ok(path) => path,
            Err(error) => {
                tracing::debug!(%error, "no system bus");
                return Ok(None);
            }
        };
        let (sender, receiver) = mpsc::channel();
        std::thread::Builder::new().spawn(move || sender.send(DuplexConn::connect_to_bus(path, false)).ok())?;
        match receiver.recv_timeout(CONNECT_DEADLINE) {
            Ok(connected) => {
                Ok(connected.inspect_err(|error| tracing::debug!(%error, "no system bus")).ok().and_then(Self::on))
            }
            Err(_) => {
                tracing::warn!(
                    "the system bus has not answered within {CONNECT_DEADLINE:?}: going on without firewalld"
                );
                Ok(None)
            }
        }
    }

    /// firewalld, if it is on this bus and not another namespace's.
    fn on(mut conn: DuplexConn) -> Option<Self> {
        conn.send_hello(Timeout::Duration(CONNECT_DEADLINE)).ok()?;
        let mut found = Self(conn);
        if !found.ask_bus("NameHasOwner")?.body.parser().get::<bool>().ok()? {
            return None;
        }
        let process = found.ask_bus("GetConnectionUnixProcessID")?.body.parser().get::<u32>().ok();
        if is_elsewhere(process) {
            tracing::info!(process, "firewalld is in another user or network namespace: going on without it");
            return None;
        }
        Some(found)
    }

    fn ask_bus(&mut self, member: &str) -> Option<MarshalledMessage> {
        let mut ask =
            MessageBuilder::new().call(member).with_interface(BUS).on("/org/freedesktop/DBus").at(BUS).build();
        ask.body.push_param(NAME).ok()?;
        self.exchange(&ask, CONNECT_DEADLINE).ok()
    }

    /// Adds, removes or looks for an address in a zone.
    /// Errors: the error of firewalld or the bus.
    pub(crate) fn call(&mut self, method: Method, zone: &str, address: IpAddr) -> Result<Answer, CallError> {
        let (member, nothing_to_do) = match method {
            Method::Add => ("addSource", "ZONE_ALREADY_SET"),
            Method::Remove => ("removeSource", "UNKNOWN_SOURCE"),
            Method::Query => ("querySource", "UNKNOWN_SOURCE"),
        };
        let mut call = MessageBuilder::new().call(member).with_interface(ZONE).on(PATH).at(NAME).build();
        let source = IpNetwork::from(address).to_string();
        call.body.push_param2(zone, source.as_str()).map_err(|error| CallError::Refused(error.to_string()))?;
        let answer = self.exchange(&call, CALL_DEADLINE)?;
        if answer.typ == MessageType::Error {
            let name = answer.dynheader.error_name.clone().unwrap_or_default();
            let text = answer.body.parser().get::<String>().unwrap_or_default();
            return match text.contains(nothing_to_do) {
                true => Ok(Answer::No),
                false => Err(CallError::Refused(format!("{name}: {text}"))),
            };
        }
        match method {
            Method::Query => match answer.body.parser().get::<bool>() {
                Ok(true) => Ok(Answer::Yes),
                Ok(false) => Ok(Answer::No),
                Err(error) => Err(CallError::no_answer(error)),
            },
            Method::Add | Method::Remove => Ok(Answer::Yes),
        }
    }

    fn exchange(&mut self, message: &MarshalledMessage, within: Duration) -> Result<MarshalledMessage, CallError> {
        let start = Instant::now();
        let left = || Timeout::Duration(within.saturating_sub(start.elapsed()));
        let sent = self.0.send.send_message(message).map_err(CallError::no_answer)?;
        let serial = sent.write(left()).map_err(|(context, error)| {
            context.force_finish();
            CallError::no_answer(error)
        })?;
        loop {
            let answer = self.0.recv.get_next_message(left()).map_err(CallError::no_answer)?;
            if answer.dynheader.response_serial == Some(serial) {
                return Ok(answer);
            }
        }
    }
}

/// The inode of the first user namespace (`PROC_USER_INIT_INO` of linux/proc_ns.h).
const FIRST_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// Whether firewalld, with this pid on the bus, is in another user or network namespace. Where its process cannot be seen, it is
/// in the node's, whose services are in the first user namespace: rootless runtimes see the node's bus, too.
fn is_elsewhere(process: Option<u32>) -> bool {
    let namespace = |process: &str, kind: &str| {
        let found = std::fs::metadata(format!("/proc/{process}/ns/{kind}")).ok()?;
        Some((found.dev(), found.ino()))
    };
    // The pid may be another process's in this PID namespace.
    let seen = process.map(|process| process.to_string()).filter(|process| {
        std::fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.starts_with("firewalld"))
    });
    let same = |kind| Some(namespace(seen.as_deref()?, kind)? == namespace("thread-self", kind)?);
    match (same("user"), same("net")) {
        (Some(has_user), Some(has_net)) => !(has_user && has_net),
        _ => namespace("self", "user").is_some_and(|(_, inode)| inode != FIRST_USER_NAMESPACE),
    }
}
