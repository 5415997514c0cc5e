//! The calls that the mock plugins received, and what becomes of them in a report.

use super::{RuntimeTestbed, Variables};
use crate::finding::CallRecord;
use crate::runtime::mock_plugin::{self, Received};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use testns::{Output, Verb};

impl RuntimeTestbed {
    /// The calls that mock plugins received since they were last forgotten, in the order in which they began. Calls
    /// with VERSION are left out: a runtime may ask at any time.
    pub fn received(&self) -> Vec<Received> {
        let forgotten = self.with_state(|state| state.forgotten);
        mock_plugin::calls().into_iter().skip(forgotten).filter(|call| call.verb() != "VERSION").collect()
    }

    pub fn received_of(&self, verb: Verb) -> Vec<Received> {
        self.received().into_iter().filter(|call| call.verb() == verb.to_string()).collect()
    }

    pub fn forget(&self) {
        let count = mock_plugin::calls().len();
        self.with_state(|state| state.forgotten = count);
    }

    /// Waits until mock plugins have received something; `false` if that takes too long.
    pub fn receives(&self, deadline: Duration, is_it: impl Fn(&[Received]) -> bool) -> bool {
        let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .unwrap_or_else(|error| panic!("inotify: {error}"));
        let added = watch.add_watch(mock_plugin::folder(), AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE);
        added.unwrap_or_else(|error| panic!("cannot watch the plugins: {error}"));
        let start = Instant::now();
        loop {
            if is_it(&self.received()) {
                return true;
            }
            let left = deadline.saturating_sub(start.elapsed());
            let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            if left.is_zero() || poll(&mut fds, timeout).unwrap_or(0) == 0 {
                return is_it(&self.received());
            }
            watch.read_events().ok(); // what they are about is looked at above
        }
    }

    pub(super) fn record(
        &self,
        arguments: &[String],
        environment: Variables,
        output: Option<&Output>,
        deadline: Duration,
    ) {
        let text = |of: fn(&Output) -> &String| output.map(|output| of(output).clone()).unwrap_or_default();
        let elapsed = output.map_or(deadline, |output| output.elapsed);
        let own = CallRecord {
            before: Vec::new(),
            executable: arguments.first().cloned().unwrap_or_default(),
            arguments: arguments.iter().skip(1).cloned().collect(),
            environment,
            stdin: String::new(),
            exit: output.map(Output::code),
            stdout: text(|output| &output.stdout),
            stderr: text(|output| &output.stderr),
            milliseconds: elapsed.as_millis().try_into().unwrap_or(u64::MAX),
        };
        let received = mock_plugin::calls();
        self.with_state(|state| {
            state.calls.push(own);
            state.calls.extend(received.iter().skip(state.recorded).map(record_of));
            state.recorded = received.len();
        });
    }

    /// The runs so far, each followed by the calls of mock plugins that came of it.
    pub(crate) fn take_calls(&self) -> Vec<CallRecord> {
        self.with_state(|state| std::mem::take(&mut state.calls))
    }
}

/// A call of a mock plugin for a report; of its environment what the protocol has.
fn record_of(received: &Received) -> CallRecord {
    let is_protocol = |(name, _): &(&String, &String)| name.starts_with("CNI_");
    CallRecord {
        before: Vec::new(),
        executable: received.arguments.first().cloned().unwrap_or_default(),
        arguments: received.arguments.iter().skip(1).cloned().collect(),
        environment: received.environment.iter().filter(is_protocol).map(|(n, v)| (n.clone(), v.clone())).collect(),
        stdin: received.stdin.clone(),
        exit: received.ended.map(|_| i32::from(received.exit)),
        stdout: received.stdout.clone(),
        stderr: String::new(),
        milliseconds: 0,
    }
}
