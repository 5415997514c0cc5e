//! Operations of `libcni`, from a test without an event loop.

/// Runs an operation of our library to its end.
///
/// # Panics
/// No event loop can be made.
pub fn wait<T>(operation: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(operation)
}
