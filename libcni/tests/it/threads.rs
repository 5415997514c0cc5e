//! A process that can make no thread.

use std::process::Command;

/// The stack of each thread: larger than any address space, so no thread can be made.
const NO_THREADS: (&str, &str) = ("RUST_MIN_STACK", "1125899906842624");

/// The test runs on the main thread if tests run one at a time.
#[test]
fn work_for_a_thread_that_cannot_be_made_is_an_error() {
    #[expect(clippy::disallowed_methods, reason = "the variable is one of this test's own process")]
    let has_threads = std::env::var_os(NO_THREADS.0).is_none();
    if has_threads {
        let name = "threads::work_for_a_thread_that_cannot_be_made_is_an_error";
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--test-threads=1", "--exact", name]).env(NO_THREADS.0, NO_THREADS.1);
        let output = again.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let outcome = runtime.block_on(libcni::aside(|| 7));
    match has_threads {
        true => assert_eq!(outcome.unwrap(), 7),
        false => assert!(outcome.unwrap_err().to_string().starts_with("cannot make a thread: ")),
    }
}
