//! Takes back an ADD that succeeded but whose result could not be written: the runtime counts it as failed.
//!
//! DEL does that for most plugins. But DEL restores less than a failed ADD undoes, such as no sysctls of tuning, so a
//! plugin may keep its undos until its result is written.

use std::cell::RefCell;

/// Takes back what ADD made.
///
/// # Errors
/// The changes that are left.
type TakeBack = Box<dyn FnOnce() -> Result<(), String>>;

thread_local! {
    static KEPT: RefCell<Option<TakeBack>> = const { RefCell::new(None) };
}

/// Keeps the way in which the ADD of this call is taken back if its result cannot be written. Without it, DEL is called.
pub fn take_back_by(way: impl FnOnce() -> Result<(), String> + 'static) {
    KEPT.set(Some(Box::new(way)));
}

/// The way that the ADD kept, once.
pub(crate) fn kept() -> Option<TakeBack> {
    KEPT.take()
}
