//! A node of its own for each subject, on a permanent thread: all work for the subject happens there.

use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use testns::Node;

use crate::call::DEADLINE;

type Job = Box<dyn FnOnce(&Node) + Send>;

/// A thread with a [`Node`]: own network and mount namespaces, own `/run` and `/var/lib/cni`.
///
/// Subjects that shared a node would pay for each other: for a bridge with the other's ports, for a store that the
/// other has changed.
pub(crate) struct SubjectNode {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl SubjectNode {
    pub(crate) fn new() -> Result<Self, String> {
        let (jobs, queue) = channel::<Job>();
        let thread = thread::spawn(move || {
            let node = Node::with_folders(std::iter::empty::<&Path>());
            queue.iter().for_each(|job| job(&node));
        });
        let node = Self { jobs: Some(jobs), thread: Some(thread) };
        node.run(|_| ()).map(|()| node)
    }

    /// Runs `work` on the node's thread, and waits for it.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce(&Node) -> T + Send + 'static) -> Result<T, String> {
        let (answer, answers) = channel();
        let job: Job = Box::new(move |node| {
            answer.send(work(node)).ok(); // the asker waits
        });
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        let ended = || "its node is no more: stderr says why".to_owned();
        if sent { answers.recv().map_err(|_ended| ended()) } else { Err(ended()) }
    }
}

impl Drop for SubjectNode {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok(); // a panic was reported where it happened
        }
    }
}

/// Waits until the kernel has taken apart the namespaces of nodes and pods that are no more.
pub(crate) fn settle() -> Result<(), String> {
    SubjectNode::new()?.run(|node| node.settle(DEADLINE))
}
