//! What plugin and daemon say to each other: one request and one reply, each a line of JSON, on a stream socket.
//!
//! The reference's daemon speaks HTTP and answers our line with `HTTP/1.1 400 Bad Request`; the reference's plugin begins with
//! `CONNECT`, and our daemon answers that with an HTTP error. So neither waits for the other, and both say why.

use std::io;
use std::path::Path;
use std::time::Duration;

use cni_spec::{CniError, Code};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::ipv6::Given;
use crate::lease::Lease;

pub const VERSION: u32 = 1;

/// The longest request that is read, in bytes.
pub const LINE_BYTES_MAX: u64 = 1 << 20;

/// The longest answer that is read, in bytes: a list of some ten thousand leases.
const ANSWER_BYTES_MAX: u64 = 1 << 26;

/// How long the daemon may take beyond the time that a lease may take.
const ANSWER_MARGIN: Duration = Duration::from_secs(5);

/// The first bytes of an answer of the reference's daemon.
const HTTP: &str = "HTTP/";

/// The names of an attachment, checked by the plugin.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct Names {
    pub network: String,
    pub container_id: String,
    pub ifname: String,
}

/// A namespace as the plugin has opened it: the daemon opens the path again, and has to find the same one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    pub path: String,
    /// Device and inode.
    pub identity: [u64; 2],
}

/// What the daemon does beyond the reference's, if it is asked to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Extras {
    /// The link's MTU is lowered to that of the server.
    pub use_mtu: bool,
    /// No address is used that another station of the link has.
    pub detect_conflict: bool,
    /// The link gets an IPv6 address, too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ipv6: bool,
}

/// What the daemon has for an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Granted {
    #[serde(flatten)]
    pub lease: Lease,
    /// The IPv6 address, where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<Given>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "verb", rename_all_fields = "camelCase")]
pub enum Request {
    /// A lease for a link, or the one that it has.
    Add {
        names: Names,
        sandbox: Sandbox,
        client_id: Vec<u8>,
        provide: Vec<(u8, Vec<u8>)>,
        request: Vec<u8>,
        priority: u32,
        #[serde(default)]
        extras: Extras,
    },
    Check {
        names: Names,
    },
    Del {
        names: Names,
    },
    /// Leases of the network are released except those of valid attachments.
    Gc {
        network: String,
        /// The attachments that stay.
        valid: Vec<Names>,
        /// The attachments that were on the node when the runtime examined it; `None`: all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<Vec<Names>>,
    },
    Status,
    /// All leases: a list of [`crate::lease_files::LeaseRecord`].
    List,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    pub cni_dhcp: u32,
    #[serde(flatten)]
    pub request: Request,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DaemonReply {
    Done(Value),
    /// The reason why the daemon refused the request.
    Failed {
        code: u32,
        /// The operation that failed, and why.
        msg: String,
        details: String,
    },
}

/// The reason why the daemon did not answer.
#[derive(Debug)]
pub enum CallError {
    /// No daemon of ours can be reached: the socket is missing, nothing has it open, or it is the reference's; or the daemon
    /// ended before it answered.
    Away(CniError),
    /// The daemon has not answered in time: it is stopped or stuck, or another program listens. It may yet do what it was
    /// asked for.
    Silent(CniError),
    Failed(CniError),
}

impl From<CallError> for CniError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Away(error) | CallError::Silent(error) | CallError::Failed(error) => error,
        }
    }
}

/// Asks the daemon. `within` is how long it may need for the work itself.
pub async fn call(socket: &Path, request: Request, within: Duration) -> Result<Value, CallError> {
    match tokio::time::timeout(within + ANSWER_MARGIN, exchange(socket, request)).await {
        Ok(answer) => answer,
        Err(_elapsed) => {
            let why = format!("it has not answered within {:?}", within + ANSWER_MARGIN);
            let advice =
                "It is stopped or stuck, or another program listens there: look at its log, and start it anew.";
            Err(CallError::Silent(failed(socket, Code::TIMEOUT, why).detail(advice)))
        }
    }
}

async fn exchange(socket: &Path, request: Request) -> Result<Value, CallError> {
    let mut stream = UnixStream::connect(socket).await.map_err(|error| {
        let advice = "Start `dhcp daemon`, or set ipam.daemonSocketPath to where it listens.";
        // Also where no socket can be: a path that is too long, or below a file.
        CallError::Away(failed(socket, Code::TRY_AGAIN, error.to_string()).detail(advice))
    })?;
    let broken = |error: io::Error| CallError::Failed(failed(socket, Code::IO, error.to_string()));
    let line = line(&Envelope { cni_dhcp: VERSION, request }).map_err(|error| broken(error.into()))?;
    let mut answer = String::new();
    let exchanged = async {
        stream.write_all(&line).await?;
        BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_line(&mut answer).await
    };
    let length = match exchanged.await {
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => 0,
        exchanged => exchanged.map_err(broken)?,
    };
    if length == 0 {
        let error = failed(socket, Code::TRY_AGAIN, "it ended before it answered".into());
        return Err(CallError::Away(error.detail("Look at its log, and repeat the call once it runs.")));
    }
    if answer.starts_with(HTTP) {
        let error = failed(socket, Code::DELEGATE, "it is the reference plugins' daemon".into());
        return Err(CallError::Away(error.detail("Stop it, and start `dhcp daemon` of this suite.")));
    }
    match serde_json::from_str(&answer) {
        Ok(DaemonReply::Done(value)) => Ok(value),
        Ok(DaemonReply::Failed { code, msg, details }) => {
            Err(CallError::Failed(CniError::new(Code(code), msg).detail(details)))
        }
        Err(error) => Err(broken(error.into())),
    }
}

pub(crate) fn line(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    Ok(line)
}

fn failed(socket: &Path, code: Code, why: String) -> CniError {
    CniError::new(code, format!("cannot ask the dhcp daemon at {}: {why}", socket.display()))
}
