//! Calls that are part of another: a runtime's operation, or the call of a plugin that delegates.

use super::read_back::{Filter, Want};
use call_log::Record;
use std::ops::ControlFlow;

/// Calls that wait for the record of the one they are part of. That is written last, or never, if its process was killed.
const WAITING_MAX: usize = 1000;
/// A number above the parts that a call has: an operation has one for each plugin, and these have one for each delegate.
const PARTS_MAX: usize = 64;

pub(crate) struct NestedCall {
    pub(crate) record: Record,
    pub(crate) parts: Vec<NestedCall>,
}

/// The last calls of a log, which is read from its end; their parts do not count.
pub(crate) struct Last {
    count: usize,
    /// The newest first.
    records: Vec<Record>,
    /// The number of calls that are part of no other.
    wholes: usize,
    /// When the earliest of the last `count` of these began.
    begin_us: u64,
}

impl Last {
    pub(crate) fn new(count: usize) -> Self {
        Self { count, records: Vec::new(), wholes: 0, begin_us: u64::MAX }
    }

    /// Adds the record before, if the filter takes it. Breaks where all that belongs to the last calls was added: a part is
    /// written after the whole began.
    pub(crate) fn add(&mut self, record: Record, filter: &Filter<'_>) -> ControlFlow<(), Want> {
        let has_all = self.wholes >= self.count;
        if has_all && end_us(&record) < self.begin_us || self.records.len() >= self.records_max() {
            return ControlFlow::Break(());
        }
        if filter.takes(&record) {
            if record.within_us.is_none() {
                self.wholes += 1;
                self.begin_us = if has_all { self.begin_us } else { self.begin_us.min(record.begin_us) };
            }
            self.records.push(record);
        }
        ControlFlow::Continue(if self.wholes >= self.count { Want::Any } else { Want::Taken })
    }

    fn records_max(&self) -> usize {
        self.count.saturating_mul(PARTS_MAX).saturating_add(WAITING_MAX)
    }

    /// The calls in the order in which they ended. A part whose whole left no record is a call of its own.
    pub(crate) fn into_calls(self) -> Vec<NestedCall> {
        let (mut calls, mut waiting): (Vec<NestedCall>, Vec<NestedCall>) = (Vec::new(), Vec::new());
        for record in self.records.into_iter().rev() {
            let is_part = |call: &mut NestedCall| {
                call.record.within_us == Some(record.begin_us) && call.record.container == record.container
            };
            let parts = waiting.extract_if(.., is_part).collect();
            let is_whole = record.within_us.is_none();
            let call = NestedCall { record, parts };
            if is_whole {
                calls.push(call)
            } else {
                waiting.push(call)
            }
            if waiting.len() > WAITING_MAX {
                calls.push(waiting.remove(0));
            }
        }
        calls.append(&mut waiting);
        calls.sort_by_key(|call| end_us(&call.record));
        calls.split_off(calls.len().saturating_sub(self.count))
    }
}

fn end_us(record: &Record) -> u64 {
    record.begin_us.saturating_add(record.duration_us)
}

/// Each call before its parts, with its depth.
pub(crate) fn flat(calls: Vec<NestedCall>) -> Vec<(usize, Record)> {
    let mut rows = Vec::new();
    push(calls, 0, &mut rows);
    rows
}

fn push(calls: Vec<NestedCall>, depth: usize, rows: &mut Vec<(usize, Record)>) {
    for NestedCall { record, parts } in calls {
        rows.push((depth, record));
        push(parts, depth + 1, rows);
    }
}
