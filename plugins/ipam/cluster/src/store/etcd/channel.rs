//! A call of gRPC: HTTP/2 on TLS on TCP, one message each way.

use std::cell::Cell;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use cluster_keys::Endpoint;
use h2::client::SendRequest;
use http::{HeaderMap, Request};
use prost::Message;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The answer that a member's document may have at most.
const BYTES_MAX: usize = 64 << 20;
/// The bytes that a member may send before it waits.
const WINDOW: u32 = 1 << 20;

/// A connection to a member.
#[derive(Clone)]
pub(super) struct Channel {
    requests: SendRequest<Bytes>,
    authority: String,
}

/// Why a member did not serve.
#[derive(Debug)]
pub(super) enum Failed {
    /// The member cannot be reached, or says that it cannot serve now.
    Away(String),
    /// The member serves, and refuses this node.
    Refused(String),
    /// The member serves, and has no room for the request.
    Full(String),
}

fn away(error: impl std::fmt::Display) -> Failed {
    Failed::Away(error.to_string())
}

/// A failed connection, with the key that is to be looked at if it is TLS that failed.
fn broken(error: &std::io::Error) -> Failed {
    let key = match error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(_)) => {
            ": ipam.store.caFile has not the authority of the member's certificate"
        }
        Some(rustls::Error::AlertReceived(_)) => ": the member refuses the certificate of ipam.store.certFile",
        _ => "",
    };
    Failed::Away(format!("{error}{key}"))
}

/// A failed call. Members look at the node's certificate after the handshake.
fn cut_off(error: &h2::Error) -> Failed {
    error.get_io().map_or_else(|| away(error), broken)
}

impl Channel {
    /// Connects to a member, whose certificate is verified.
    pub(super) async fn open(endpoint: &Endpoint, tls: Arc<ClientConfig>) -> Result<Self, Failed> {
        let stream = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await.map_err(away)?;
        stream.set_nodelay(true).map_err(away)?;
        let name = ServerName::try_from(endpoint.host.clone()).map_err(away)?;
        let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(|error| broken(&error))?;
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(WINDOW).initial_connection_window_size(WINDOW);
        let (requests, connection) = builder.handshake(stream).await.map_err(|error| cut_off(&error))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to etcd ended");
            }
        });
        let authority = endpoint.to_string().trim_start_matches("https://").to_owned();
        Ok(Self { requests, authority })
    }

    /// Calls a method of etcd's KV service. `is_sent` is set before the first byte of the request leaves.
    pub(super) async fn call<A: Message + Default>(
        &self,
        method: &str,
        message: &impl Message,
        is_sent: &Cell<bool>,
    ) -> Result<A, Failed> {
        let request = Request::post(format!("https://{}/etcdserverpb.KV/{method}", self.authority))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            // A member that has lost the leader says so, and another one is asked.
            .header("hasleader", "true")
            .body(())
            .map_err(away)?;
        let mut requests = self.requests.clone().ready().await.map_err(|error| cut_off(&error))?;
        is_sent.set(true);
        let (response, mut body) = requests.send_request(request, false).map_err(away)?;
        body.send_data(framed(message), true).map_err(away)?;
        let response = response.await.map_err(|error| cut_off(&error))?;
        if let Err(failed) = status(response.headers(), false) {
            // A member without leader says so before it looks at the request.
            is_sent.set(!matches!(&failed, Failed::Away(why) if why.contains("no leader")));
            return Err(failed);
        }
        let mut body = response.into_body();
        let mut bytes = BytesMut::new();
        while let Some(part) = body.data().await {
            let part = part.map_err(|error| cut_off(&error))?;
            body.flow_control().release_capacity(part.len()).map_err(away)?;
            bytes.extend_from_slice(&part);
            if bytes.len() > BYTES_MAX {
                return Err(Failed::Refused(format!("the answer is longer than {BYTES_MAX} bytes")));
            }
        }
        let trailers = body.trailers().await.map_err(away)?;
        status(&trailers.unwrap_or_default(), true)?;
        unframed(bytes.freeze()).ok_or_else(|| Failed::Away(format!("the answer to {method} is no message of etcd")))
    }
}

/// A message with gRPC's five bytes before it: not compressed, its length.
fn framed(message: &impl Message) -> Bytes {
    let bytes = message.encode_to_vec();
    let mut framed = BytesMut::with_capacity(bytes.len() + 5);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(&bytes);
    framed.freeze()
}

/// The message of a complete answer.
fn unframed<A: Message + Default>(mut bytes: Bytes) -> Option<A> {
    if bytes.len() < 5 || bytes.get_u8() != 0 {
        return None;
    }
    let length = usize::try_from(bytes.get_u32()).ok()?;
    (bytes.len() == length).then(|| A::decode(bytes).ok())?
}

/// The outcome in headers or trailers (gRPC over HTTP/2, "Responses"); headers have one only where nothing follows.
fn status(headers: &HeaderMap, is_end: bool) -> Result<(), Failed> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let message = text("grpc-message").unwrap_or("no message").to_owned();
    match text("grpc-status") {
        Some("0") => Ok(()),
        None if !is_end => Ok(()),
        None => Err(Failed::Away("the answer has no status".to_owned())),
        // RESOURCE_EXHAUSTED is also "too many requests", which passes; the others do not.
        Some("8") if message.contains("space") => Err(Failed::Full(message)),
        Some("3" | "8") if message.contains("too large") || message.contains("larger than max") => {
            Err(Failed::Full(message))
        }
        // INVALID_ARGUMENT (a wrong name or token), NOT_FOUND, PERMISSION_DENIED, FAILED_PRECONDITION, UNIMPLEMENTED, UNAUTHENTICATED.
        Some("3" | "5" | "7" | "9" | "12" | "16") => Err(Failed::Refused(message)),
        Some(_) => Err(Failed::Away(message)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::{KeyValue, TxnResponse};
    use super::*;

    #[test]
    fn a_message_is_framed_and_an_incomplete_one_is_none() {
        let message = KeyValue { key: b"k".to_vec(), mod_revision: 7, value: b"v".to_vec() };
        let bytes = framed(&message);
        assert_eq!(unframed::<KeyValue>(bytes.clone()), Some(message));
        for length in 0..bytes.len() {
            assert_eq!(unframed::<KeyValue>(bytes.slice(..length)), None);
        }
        assert_eq!(unframed::<TxnResponse>(Bytes::from_static(&[1, 0, 0, 0, 0])), None, "compressed");
    }

    #[test]
    fn an_answer_without_status_is_none() {
        assert!(status(&HeaderMap::new(), false).is_ok());
        assert!(matches!(status(&HeaderMap::new(), true), Err(Failed::Away(_))));
    }

    /// The texts of etcd's api/v3rpc/rpctypes/error.go, and of gRPC.
    #[test]
    fn each_error_of_etcd_passes_or_does_not() {
        for (number, message, expected) in [
            ("14", "etcdserver: no leader", "Away"),
            ("14", "etcdserver: request timed out", "Away"),
            ("8", "etcdserver: too many requests", "Away"),
            // No request names a revision.
            ("11", "etcdserver: mvcc: required revision has been compacted", "Away"),
            ("8", "etcdserver: mvcc: database space exceeded", "Full"),
            ("3", "etcdserver: request is too large", "Full"),
            ("8", "grpc: received message larger than max (2097152 vs. 1572864)", "Full"),
            ("7", "etcdserver: permission denied", "Refused"),
            ("3", "etcdserver: user name is empty", "Refused"),
            ("16", "etcdserver: invalid auth token", "Refused"),
        ] {
            let headers = [("grpc-status", number), ("grpc-message", message)];
            let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            let failed = status(&HeaderMap::from_iter(headers), true).unwrap_err();
            assert_eq!(format!("{failed:?}"), format!("{expected}({message:?})"));
        }
    }
}
