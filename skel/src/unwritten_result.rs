//! Takes back an ADD that succeeded but whose result could not be written: the runtime counts it as failed.
//!
//! DEL does that for most plugins. But DEL restores less than a failed ADD undoes, such as no sysctls of tuning, so a
//! plugin may keep its undos until its result is written.

use std::cell::RefCell;

use crate::plugin::Work;

thread_local! {
    static KEPT: RefCell<Option<Work<'static, Vec<String>>>> = const { RefCell::new(None) };
}

/// Keeps the work that takes the ADD of this call back if its result cannot be written, and returns the changes that are left, a
/// sentence each. Without it, DEL is called. The work has a deadline of its own, and does not panic.
pub fn take_back_by(work: impl Future<Output = Vec<String>> + 'static) {
    KEPT.set(Some(Box::pin(work)));
}

/// The work that the ADD kept, once; its error is what is left.
pub(crate) fn kept() -> Option<Work<'static, Result<(), String>>> {
    let work = KEPT.take()?;
    Some(Box::pin(async {
        let left = work.await;
        if left.is_empty() { Ok(()) } else { Err(left.join("; ")) }
    }))
}
