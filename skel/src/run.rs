//! A plugin's whole `main`.

use crate::call::Call;
use crate::plugin::{self, Entry};
use crate::reply::Reply;
use crate::{cni_ask, event_loop, interrupt, log, record, unwritten_result};
use cni_spec::{CniError, Code, Command, SpecVersion};
use futures::FutureExt;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use signal_hook::consts::SIGPIPE;
use std::any::Any;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, IntoRawFd};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::sync::Arc;

/// Runs one plugin as this process: its whole `main`. `release` is the version in the about text, such as
/// `env!("CARGO_PKG_VERSION")`.
#[must_use]
pub fn main(plugin: &'static Entry, release: &str) -> ExitCode {
    let entries = std::slice::from_ref(plugin);
    // For plugins of other projects. The suite's own executable has no answers: `cnitool` has its parsers.
    match cni_ask::reply(plugin, &Call::of_process(entries)) {
        Some(answer) => answer.send().into(),
        None => serve(plugin, entries, plugin.name, release).into(),
    }
}

/// Runs the plugin whose name is this executable's file name, as busybox does; `cnv-bridge` and `bridge-1.2` are names
/// of `bridge`. By its own name it takes the plugin's name as first argument; without one it lists its plugins, one a
/// line. `words` are the process's arguments, its own name first; `release` is the version in the about text, without `v`.
/// Returns the exit status.
#[must_use]
pub fn run(mut words: impl Iterator<Item = String>, entries: &'static [Entry], release: &str) -> u8 {
    let called = words.next().filter(|word| !word.is_empty()).or_else(own_file).unwrap_or_default();
    let name = Path::new(&called).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let call = Call::of_process(entries);
    let word = words.next();
    let by_word = || entries.iter().find(|entry| Some(entry.name) == word.as_deref());
    match plugin::find(entries, &name).or_else(by_word) {
        Some(entry) => serve(entry, entries, &name, release),
        None if word.as_deref() == Some("--mark") => Reply::success(format!("{}\n", cni_suite::MARK)).send(),
        None if call.env.command.is_empty() => list(entries),
        None => {
            let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
            let error = CniError::new(
                Code::INVALID_ENVIRONMENT,
                format!("cannot run plugin {name:?}: this executable contains no plugin of that name"),
            )
            .detail(format!("The file name selects the plugin. It contains {}.", names.join(", ")))
            .detail("Install it under one of these names, or with one behind or before a hyphen: my-NAME, NAME-2.");
            Reply::failure(&error, SpecVersion::LATEST).send()
        }
    }
}

/// Answers a call whose process could not be made ready, and returns the exit status.
#[must_use]
pub fn refuse(error: &io::Error) -> u8 {
    let error = CniError::new(Code::IO, format!("cannot open /dev/null in place of a closed standard stream: {error}"))
        .detail(
            "Nothing was changed. Start the plugin with stdin, stdout and stderr open, or give it a /dev with null.",
        );
    Reply::failure(&error, SpecVersion::LATEST).send()
}

/// The file of this process, for a caller of `execve` that gives no arguments.
fn own_file() -> Option<String> {
    Some(std::env::current_exe().ok()?.to_string_lossy().into_owned())
}

fn list(entries: &[Entry]) -> u8 {
    let lines: String = entries.iter().map(|entry| format!("{}\n", entry.name)).collect();
    Reply::success(lines).send()
}

/// Answers the call as `entry`; `file` is the name that it was called by.
fn serve(entry: &Entry, entries: &'static [Entry], file: &str, release: &str) -> u8 {
    let call = Call::of_process(entries);
    if call.env.command.is_empty() {
        return about(entry, release);
    }
    log::start();
    if entry.name != file {
        tracing::debug!(file, plugin = entry.name, "the file has another name than the plugin");
    }
    interrupt::survive_file_size_limit();
    silence_panics();
    record::begin(&call);
    let reply = finish(pin!(answer(entry, &call)));
    let record = record::of(entry.name, &call, &reply);
    let mut is_unsent = false;
    let exit = reply.send_or(|| {
        is_unsent = true;
        take_back(entry, &call);
    });
    if let Some(record) = record {
        record.write(is_unsent);
    }
    exit
}

/// Rolls back an ADD whose result could not be written: the runtime counts it as failed.
fn take_back(entry: &Entry, call: &Call) {
    if call.env.find_command() != Some(Command::Add) {
        return;
    }
    let reply = finish(pin!(async {
        let Some(take_back) = unwritten_result::kept() else { return answer(entry, &call.as_del()).await };
        match take_back.await {
            Ok(()) => Reply::default(),
            Err(left) => Reply::failure(&CniError::new(Code::INTERNAL, left), SpecVersion::LATEST),
        }
    }));
    match CniError::find_in(&reply.stdout) {
        Some(left) => tracing::error!(left = %left, "what ADD had made could not all be removed"),
        None => tracing::error!("what ADD had made was removed again"),
    }
}

/// Polls the work to its end. Most calls never wait, as the kernel answers a netlink request while it is sent; the
/// event loop, which costs as much as the rest of the start, is created when the work waits. Where the kernel gives none, ADD is
/// cancelled and rolled back, and DEL removes what it can.
fn finish(work: Pin<&mut impl Future<Output = Reply>>) -> Reply {
    let (error, ended) = match event_loop::run(work) {
        Ok(reply) => return reply,
        Err(refused) => refused,
    };
    let failure = ended.as_ref().and_then(|reply| CniError::find_in(&reply.stdout));
    let rest = match (ended, failure) {
        (Some(_), Some(failure)) if failure.code == Code::INTERRUPTED => failure.details,
        (Some(reply), _) => return reply,
        (None, _) => "What was done may be left: call DEL.".to_owned(),
    };
    Reply::failure(&error.detail(rest), SpecVersion::LATEST)
}

/// Without `CNI_COMMAND`, a person is asking: the about text, on stderr as in the reference. Programs ask, too: nomad and
/// nerdctl take the first word that is a version as the plugin's.
fn about(entry: &Entry, release: &str) -> u8 {
    let versions: Vec<&str> = entry.versions.iter().map(|version| version.as_str()).collect();
    let text =
        format!("CNI {} plugin v{release}\nCNI protocol versions supported: {}\n", entry.name, versions.join(", "));
    u8::from(io::stderr().write_all(text.as_bytes()).is_err())
}

/// The handler's reply, or an error object if it panics.
async fn answer(entry: &Entry, call: &Call) -> Reply {
    match AssertUnwindSafe(entry.answer(call)).catch_unwind().await {
        Ok(reply) => reply,
        Err(panic) => {
            let error =
                CniError::new(Code::INTERNAL, format!("fault in plugin {}: {}", entry.name, panic_text(&*panic)))
                    .detail("This is a bug of the plugin. Call DEL, and report it with the config that led here.");
            Reply::failure(&error, SpecVersion::LATEST)
        }
    }
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// Turns a panic into an error object; its location is logged in one line.
fn silence_panics() {
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
}

/// Stack of the first thread, in bytes. An ADD of a bridge uses 52 kB of it, and four times that without optimisation.
const STACK: rlim_t = 1 << 20;

/// Does what Rust's own start does before `main`, and plugins rely on: each standard stream that is closed becomes
/// `/dev/null`, so that no file which a plugin opens becomes its stdout; and a write to a pipe that nothing reads fails with
/// `EPIPE` instead of ending the process. Also makes sure of a stack that suffices. Where the kernel or a filter of system calls
/// refuses the handler of SIGPIPE, the call goes on without it.
///
/// # Errors
/// A standard stream is closed, and there is no `/dev/null`.
pub fn start() -> io::Result<()> {
    open_closed_streams()?;
    allow_stack();
    signal_hook::flag::register(SIGPIPE, Arc::default()).map(drop).unwrap_or_default();
    Ok(())
}

/// Opens each closed standard stream on /dev/null. One `poll` reports which are closed; where it is refused, each is asked.
fn open_closed_streams() -> io::Result<()> {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let mut streams = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()].map(|fd| PollFd::new(fd, PollFlags::empty()));
    let is_polled = poll(&mut streams, PollTimeout::ZERO).is_ok();
    let is_closed = |stream: &&PollFd<'_>| match is_polled {
        true => stream.revents().is_some_and(|events| events.contains(PollFlags::POLLNVAL)),
        false => fcntl(stream.as_fd(), FcntlArg::F_GETFD) == Err(Errno::EBADF),
    };
    for _ in streams.iter().filter(is_closed) {
        // In the order of their numbers: a file gets the lowest that is free. It stays open until the process ends.
        let _number = File::options().read(true).write(true).open("/dev/null")?.into_raw_fd();
    }
    Ok(())
}

/// The kernel lets the first thread's stack grow as far as the limit allows when it grows. A runtime may have been started with less
/// than plugins need, which those of the reference do not notice: Go has stacks of its own.
fn allow_stack() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_STACK) else { return };
    // Root may raise both; with neither raised, what has room goes on.
    let raise = |most| setrlimit(Resource::RLIMIT_STACK, STACK.min(most), most);
    if soft < STACK {
        raise(hard.max(STACK)).or_else(|_| raise(hard)).unwrap_or_default();
    }
}
