//! Watches: changes since a version, with bookmarks, until their time is over.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

use crate::State;
use crate::requests::Selection;

/// A client's watch.
pub(crate) struct Watch {
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) changed: watch::Receiver<u64>,
    pub(crate) selection: Selection,
    pub(crate) from: u64,
    pub(crate) wants_bookmarks: bool,
}

pub(crate) type Sent = mpsc::Sender<io::Result<Frame<Bytes>>>;

impl Watch {
    /// Sends changes, in each break of them a bookmark, until the time is over or the client has gone.
    pub(crate) async fn send(mut self, sender: Sent, time: Duration) {
        let end = Instant::now() + time;
        loop {
            for event in self.events() {
                let is_gone = event["type"] == "ERROR";
                if sender.send(Ok(Frame::data(Bytes::from(format!("{event}\n"))))).await.is_err() || is_gone {
                    return;
                }
            }
            match timeout_at(end, self.changed.changed()).await {
                Ok(Ok(())) if *self.changed.borrow_and_update() > 1 => {}
                _ => return,
            }
        }
    }

    fn events(&mut self) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        if self.from < state.oldest {
            let status = json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old resource version"});
            return vec![json!({"type": "ERROR", "object": status})];
        }
        let is_wanted = |name, object| self.selection.has(name, object);
        let new =
            state.log.iter().filter(|change| change.version > self.from && is_wanted(&change.name, &change.object));
        let mut events: Vec<_> = new.map(|change| json!({"type": change.kind, "object": change.object})).collect();
        if self.wants_bookmarks && events.is_empty() && state.version > self.from {
            let mut object = self.selection.kind.clone();
            object["metadata"] = json!({"resourceVersion": state.version.to_string()});
            events.push(json!({"type": "BOOKMARK", "object": object}));
        }
        self.from = state.version;
        events
    }
}
