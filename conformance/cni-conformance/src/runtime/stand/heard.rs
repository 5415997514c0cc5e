//! What the judges heard, and what becomes of it in a report.

use super::{Stand, Variables};
use crate::finding::CallRecord;
use crate::runtime::judge::{self, Heard};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use testns::{Output, Verb};

impl Stand {
    /// What judges heard since they were last forgotten, in the order in which the calls began. Calls with VERSION are
    /// left out: a runtime may ask at any time.
    #[must_use]
    pub fn heard(&self) -> Vec<Heard> {
        let forgotten = self.with_told(|told| told.forgotten);
        judge::calls().into_iter().skip(forgotten).filter(|call| call.verb() != "VERSION").collect()
    }

    /// Those with one verb.
    #[must_use]
    pub fn heard_of(&self, verb: Verb) -> Vec<Heard> {
        self.heard().into_iter().filter(|call| call.verb() == verb.to_string()).collect()
    }

    /// Forgets what judges heard so far.
    pub fn forget(&self) {
        let count = judge::calls().len();
        self.with_told(|told| told.forgotten = count);
    }

    /// Waits until judges have heard something; `false` if that takes too long.
    ///
    /// # Panics
    /// If it cannot be waited.
    #[must_use]
    pub fn hears(&self, deadline: Duration, is_it: impl Fn(&[Heard]) -> bool) -> bool {
        let watch = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .unwrap_or_else(|error| panic!("inotify: {error}"));
        let added = watch.add_watch(judge::folder(), AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE);
        added.unwrap_or_else(|error| panic!("cannot watch the judges: {error}"));
        let start = Instant::now();
        loop {
            if is_it(&self.heard()) {
                return true;
            }
            let left = deadline.saturating_sub(start.elapsed());
            let mut fds = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            if left.is_zero() || poll(&mut fds, timeout).unwrap_or(0) == 0 {
                return is_it(&self.heard());
            }
            watch.read_events().ok(); // what they are about is looked at above
        }
    }

    pub(super) fn record(&self, words: &[String], environment: Variables, output: Option<&Output>, deadline: Duration) {
        let text = |of: fn(&Output) -> &String| output.map(|output| of(output).clone()).unwrap_or_default();
        let elapsed = output.map_or(deadline, |output| output.elapsed);
        let own = CallRecord {
            executable: words.first().cloned().unwrap_or_default(),
            arguments: words.iter().skip(1).cloned().collect(),
            environment,
            stdin: String::new(),
            exit: output.map(Output::code),
            stdout: text(|output| &output.stdout),
            stderr: text(|output| &output.stderr),
            milliseconds: elapsed.as_millis().try_into().unwrap_or(u64::MAX),
        };
        let heard = judge::calls();
        self.with_told(|told| {
            told.calls.push(own);
            told.calls.extend(heard.iter().skip(told.recorded).map(record_of));
            told.recorded = heard.len();
        });
    }

    /// The runs so far, each followed by the calls of judges that came of it.
    pub(crate) fn take_calls(&self) -> Vec<CallRecord> {
        self.with_told(|told| std::mem::take(&mut told.calls))
    }
}

/// A call of a judge for a report; of its environment what the protocol has.
fn record_of(heard: &Heard) -> CallRecord {
    let is_protocol = |(name, _): &(&String, &String)| name.starts_with("CNI_");
    CallRecord {
        executable: heard.arguments.first().cloned().unwrap_or_default(),
        arguments: heard.arguments.iter().skip(1).cloned().collect(),
        environment: heard.environment.iter().filter(is_protocol).map(|(n, v)| (n.clone(), v.clone())).collect(),
        stdin: heard.stdin.clone(),
        exit: heard.ended.map(|_| i32::from(heard.exit)),
        stdout: heard.stdout.clone(),
        stderr: String::new(),
        milliseconds: 0,
    }
}
