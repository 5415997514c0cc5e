//! The buffer that answers of the kernel are read into, one for all connections of the main thread: a new one would be a request to
//! the kernel for memory, and a fault for each of its pages that is used.

use std::cell::Cell;
use std::mem::{ManuallyDrop, take};
use std::ops::{Deref, DerefMut};

use crate::netns::is_main_thread;

/// The size of a read. The kernel writes at most 32 KiB of a list into one (`netlink_recvmsg`), but for one link that is
/// longer: by its further names, of which the kernel takes 64 KiB (`rtnl_linkprop`). Pages that are not written cost nothing.
pub(crate) const READ_BYTES: usize = 96 * 1024;

thread_local! {
    /// The main thread's buffer while it is not in use. Its memory is not freed when the thread ends, nor is there one of
    /// another thread, which may be one of many: a destructor here would cost each process six system calls with musl.
    static SPARE: Cell<ManuallyDrop<Vec<u8>>> = const { Cell::new(ManuallyDrop::new(Vec::new())) };
}

/// A buffer in use, of [`READ_BYTES`]; a second one at the same time is new.
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    pub(crate) fn take() -> Self {
        let spare = ManuallyDrop::into_inner(SPARE.take());
        Self(if spare.capacity() > 0 { spare } else { Vec::with_capacity(READ_BYTES) })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if is_main_thread() {
            keep(take(&mut self.0));
        }
    }
}

/// Keeps a buffer for the next user, and frees that of a second one, which came and went meanwhile.
fn keep(buffer: Vec<u8>) {
    drop(ManuallyDrop::into_inner(SPARE.replace(ManuallyDrop::new(buffer))));
}

impl Deref for Buffer {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_is_kept_is_the_next_one_and_there_is_a_second_while_it_is_in_use() {
        // Of another size, as freed memory may be given out again.
        keep(Vec::with_capacity(2 * READ_BYTES));
        let (one, other) = (Buffer::take(), Buffer::take());
        assert_eq!([one.capacity(), other.capacity()], [2 * READ_BYTES, READ_BYTES]);
    }

    #[test]
    fn a_thread_that_is_not_the_first_keeps_none() {
        assert!(!is_main_thread());
        drop(Buffer::take());
        assert_eq!(SPARE.take().capacity(), 0);
    }
}
