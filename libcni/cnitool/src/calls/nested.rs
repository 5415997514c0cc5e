//! Calls that are part of another: a runtime's operation, or the call of a plugin that delegates.

use call_log::Record;
use std::collections::VecDeque;

/// Calls that wait for the record of the one they are part of. That is written last, or never, if its process was killed.
const WAITING_MAX: usize = 1000;

/// A call, and its parts.
pub(crate) struct Call {
    pub(crate) record: Record,
    pub(crate) parts: Vec<Call>,
}

/// The last calls of a log; their parts do not count.
pub(crate) struct Calls {
    count: usize,
    last: VecDeque<Call>,
    waiting: Vec<Call>,
}

impl Calls {
    /// The last `count` calls.
    pub(crate) fn new(count: usize) -> Self {
        Self { count, last: VecDeque::new(), waiting: Vec::new() }
    }

    /// Adds the next record of the log.
    pub(crate) fn add(&mut self, record: Record) {
        let is_part = |call: &mut Call| {
            call.record.within_us == Some(record.begin_us) && call.record.container == record.container
        };
        let parts = self.waiting.extract_if(.., is_part).collect();
        let call = Call { record, parts };
        match call.record.within_us {
            Some(_) => self.waiting.push(call),
            None => self.keep(call),
        }
        if self.waiting.len() > WAITING_MAX {
            let oldest = self.waiting.remove(0);
            self.keep(oldest);
        }
    }

    fn keep(&mut self, call: Call) {
        self.last.push_back(call);
        if self.last.len() > self.count {
            self.last.pop_front();
        }
    }

    /// The calls in the order in which they ended. A part whose whole left no record is a call of its own.
    pub(crate) fn into_last(self) -> Vec<Call> {
        let mut calls: Vec<Call> = self.last.into_iter().chain(self.waiting).collect();
        calls.sort_by_key(|call| call.record.begin_us.saturating_add(call.record.duration_us));
        calls.split_off(calls.len().saturating_sub(self.count))
    }
}

/// Each call before its parts, with its depth.
pub(crate) fn flat(calls: Vec<Call>) -> Vec<(usize, Record)> {
    let mut rows = Vec::new();
    push(calls, 0, &mut rows);
    rows
}

fn push(calls: Vec<Call>, depth: usize, rows: &mut Vec<(usize, Record)>) {
    for Call { record, parts } in calls {
        rows.push((depth, record));
        push(parts, depth + 1, rows);
    }
}
