//! firewalld, over D-Bus: an address is a source of a zone.
//!
//! rustbus adds a fifth of what zbus does to the executable, and needs no event loop. Its first exchange has no deadline, so
//! the connection is made on a thread of its own.

use std::fmt;
use std::net::IpAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use ipnetwork::IpNetwork;
use rustbus::connection::{Timeout, ll_conn::DuplexConn};
use rustbus::message_builder::{MarshalledMessage, MessageBuilder, MessageType};

const NAME: &str = "org.fedoraproject.FirewallD1";
const PATH: &str = "/org/fedoraproject/FirewallD1";
const ZONE: &str = "org.fedoraproject.FirewallD1.zone";
const BUS: &str = "org.freedesktop.DBus";
/// How long the bus has for the connection.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// How long firewalld has for one call: it may load its whole ruleset.
const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// A running firewalld.
pub(crate) struct Firewalld(DuplexConn);

/// A call of firewalld about a source of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Add,
    Remove,
    Query,
}

/// The answer to a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The change was done, or the zone has the source.
    Yes,
    /// There was nothing to do, or the zone does not have the source.
    No,
}

/// Why a call did not succeed.
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
    /// Connects to the system bus, if there is one, and firewalld is on it.
    ///
    /// # Errors
    /// The system bus cannot be asked, as no thread can be made.
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

    /// firewalld, if it is on this bus.
    fn on(mut conn: DuplexConn) -> Option<Self> {
        conn.send_hello(Timeout::Duration(CONNECT_DEADLINE)).ok()?;
        let mut found = Self(conn);
        let mut ask =
            MessageBuilder::new().call("NameHasOwner").with_interface(BUS).on("/org/freedesktop/DBus").at(BUS).build();
        ask.body.push_param(NAME).ok()?;
        let answer = found.exchange(&ask, CONNECT_DEADLINE).ok()?;
        answer.body.parser().get::<bool>().ok()?.then_some(found)
    }

    /// Adds, removes or looks for an address in a zone.
    ///
    /// # Errors
    /// The error of firewalld or the bus.
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
