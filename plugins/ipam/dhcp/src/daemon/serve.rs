//! A call of the daemon: a request, its reply, and the end of the connection.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use cni_spec::gc::Sweep;
use cni_spec::{CniError, Code};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::Shared;
use crate::lease_files::Subject;
use crate::rpc::{self, DaemonReply, Envelope, LINE_BYTES_MAX, Request, VERSION};

/// How long a caller may take to say what it wants, and to read the reply.
const SPEAKS_WITHIN: Duration = Duration::from_secs(10);

/// Go's net/rpc over HTTP prints the status to the reference plugin's user.
const TO_THE_REFERENCE: &str =
    "HTTP/1.0 501 this is another suite's dhcp daemon, stop it and start the reference plugins' own\r\n\r\n";

pub(super) async fn serve(shared: Rc<Shared>, mut stream: UnixStream) {
    let served = async {
        let line = within(read_line(&mut stream)).await?;
        let reply = match line.starts_with("CONNECT ") {
            true => TO_THE_REFERENCE.as_bytes().to_vec(),
            false => {
                let outcome = match parse(&line) {
                    Ok(request @ Request::Add { .. }) => {
                        // A caller that has ended needs no lease: its ADD has failed.
                        let work = answer(&shared, request);
                        tokio::select! {
                            // The work comes first, so a caller that has ended already leaves the same line in the log.
                            biased;
                            outcome = work => outcome,
                            () = hung_up(&mut stream) => return Err(io::ErrorKind::ConnectionReset.into()),
                        }
                    }
                    // A lease is given back also for a DEL that did not wait any longer.
                    Ok(request) => answer(&shared, request).await,
                    Err(error) => Err(error),
                };
                rpc::line(&match outcome {
                    Ok(value) => DaemonReply::Done(value),
                    Err(CniError { code, msg, details, .. }) => DaemonReply::Failed { code: code.0, msg, details },
                })?
            }
        };
        within(stream.write_all(&reply)).await
    };
    if let Err(error) = served.await {
        tracing::debug!(%error, "a call was broken off");
    }
}

async fn within<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(SPEAKS_WITHIN, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn read_line(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line).await?;
    Ok(line)
}

/// Waits for the end of the connection; a caller sends nothing behind its request.
async fn hung_up(stream: &mut UnixStream) {
    let mut byte = [0; 1];
    while stream.read(&mut byte).await.is_ok_and(|count| count > 0) {}
}

fn parse(line: &str) -> Result<Request, CniError> {
    let invalid = |why: String| {
        CniError::new(Code::DECODING, format!("the dhcp daemon cannot read the request: {why}"))
            .detail("Plugin and daemon have to be of one version: restart the daemon after an upgrade.")
    };
    let Envelope { cni_dhcp, request } = serde_json::from_str(line).map_err(|error| invalid(error.to_string()))?;
    match cni_dhcp == VERSION {
        true => Ok(request),
        false => Err(invalid(format!("it is of version {cni_dhcp} of the protocol, the daemon of {VERSION}"))),
    }
}

async fn answer(shared: &Rc<Shared>, request: Request) -> Result<Value, CniError> {
    match request {
        Request::Add { names, sandbox, client_id, provide, request, priority, extras } => {
            let (index, mac) = (0, [0; 6]);
            shared
                .add(Subject { names, sandbox, index, mac, client_id, provide, request, priority, extras })
                .await
                .and_then(value)
        }
        Request::Check { names } => shared.check(&names).await.and_then(|record| value(record.granted())),
        Request::Del { names } => shared.release(&names).await.and_then(value),
        Request::Gc { network, valid, seen } => shared.gc(&network, &Sweep { valid, seen }).await.and_then(value),
        Request::Status => Ok(json!({})),
        Request::List => value(shared.list().await),
    }
}

fn value(done: impl Serialize) -> Result<Value, CniError> {
    serde_json::to_value(done).map_err(|error| CniError::new(Code::INTERNAL, error.to_string()))
}
