//! Unary gRPC calls over HTTP/2 on a unix socket: a length, a message, a status.

use std::fmt;
use std::future::Future;
use std::path::Path;

use crate::DEADLINE;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, Request};
use prost::Message;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};

/// A byte that says "not compressed" and four of length go before each message.
const PREFIX_BYTES: usize = 5;

#[derive(Debug)]
pub struct Channel {
    runtime: Runtime,
    requests: SendRequest<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// gRPC status code; 2 is unknown, 5 not found.
    pub code: String,
    /// The server's message, percent-encoded where it is not ASCII.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (gRPC status {})", self.message, self.code)
    }
}

impl Channel {
    pub fn open(socket: &Path) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let requests = runtime.block_on(async {
            let stream = UnixStream::connect(socket).await.unwrap();
            let (requests, connection) = h2::client::handshake(stream).await.unwrap();
            tokio::spawn(connection); // moved on by each call's `block_on`; its end shows in the calls
            requests
        });
        Self { runtime, requests }
    }

    /// Calls a method, `runtime.v1.RuntimeService/Status`, and waits for its answer.
    pub fn call<A: Message + Default>(&self, method: &str, question: &impl Message) -> Result<A, Refusal> {
        let answer = exchange(self.requests.clone(), method, frame(question));
        self.within_deadline(method, answer).map(|bytes| A::decode(bytes.as_ref()).unwrap())
    }

    fn within_deadline<T>(&self, method: &str, work: impl Future<Output = T>) -> T {
        let done = self.runtime.block_on(async { tokio::time::timeout(DEADLINE, work).await });
        done.unwrap_or_else(|_| panic!("{method} gave no answer within {DEADLINE:?}"))
    }
}

fn frame(message: &impl Message) -> Bytes {
    let mut frame = BytesMut::with_capacity(PREFIX_BYTES + message.encoded_len());
    frame.put_u8(0);
    frame.put_u32(message.encoded_len().try_into().unwrap());
    message.encode(&mut frame).unwrap();
    frame.freeze()
}

async fn exchange(requests: SendRequest<Bytes>, method: &str, question: Bytes) -> Result<Bytes, Refusal> {
    let request = Request::post(format!("http://localhost/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let mut requests = requests.ready().await.unwrap();
    let (answer, mut body) = requests.send_request(request, false).unwrap();
    body.send_data(question, true).unwrap();
    let (head, mut body) = answer.await.unwrap().into_parts();
    let mut bytes = BytesMut::new();
    while let Some(part) = body.data().await {
        let part = part.unwrap();
        body.flow_control().release_capacity(part.len()).unwrap();
        bytes.extend_from_slice(&part);
    }
    // A refusal without any message comes in the headers.
    let trailers = body.trailers().await.unwrap().unwrap_or(head.headers);
    refusal_in(&trailers).map_or(Ok(()), Err)?;
    bytes.advance(PREFIX_BYTES);
    Ok(bytes.freeze())
}

fn refusal_in(trailers: &HeaderMap) -> Option<Refusal> {
    let text = |name| trailers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let code = text("grpc-status").unwrap_or_else(|| "missing".to_owned());
    (code != "0").then(|| Refusal { code, message: text("grpc-message").unwrap_or_default() })
}
