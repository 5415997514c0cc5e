//! The daemon: keeps the leases of all attachments of a node, on one thread.
//!
//! Leases outlive it: a lease task writes each to a file beside the socket, and the next daemon goes on. It holds no
//! namespace open but while it waits for a server's answer.

mod clock;
pub mod flags;
mod ipv6;
mod lease_task;
mod listen;
mod open_link;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use cni_spec::gc::Sweep;
use cni_spec::{CniError, Code};
use netops::boot::Boot;
use nix::libc::{SIGINT, SIGTERM};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use skel::interrupt::Signals;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{LocalSet, spawn_local};

use crate::lease_files::{self, LeaseRecord, Subject};
use crate::rpc::{self, DaemonReply, Envelope, Granted, LINE_BYTES_MAX, Names, Request, VERSION};
pub(crate) use clock::now as since_boot;
use flags::{Flags, USAGE};
pub use ipv6::RecordOfIpv6;
use lease_task::{First, LeaseTask, Order};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

/// How long a lease task may take to carry out an order. It only waits for the kernel.
const ORDER_WITHIN: Duration = Duration::from_secs(10);

/// The state that all tasks of the daemon use.
struct Shared {
    flags: Flags,
    folder: PathBuf,
    boot: String,
    /// How long a lease task may take to carry out an order.
    order_within: Duration,
    tasks: RefCell<BTreeMap<Names, Handle>>,
    next_number: Cell<u64>,
}

/// A lease task, as others see it. The number distinguishes it from an earlier one of the same attachment.
struct Handle {
    number: u64,
    orders: mpsc::Sender<Order>,
}

/// Runs `dhcp daemon` until SIGTERM or SIGINT; `words` are those after `daemon`. Returns the exit status.
pub fn main(words: impl IntoIterator<Item = String>) -> u8 {
    skel::log_at(tracing::Level::INFO);
    let words: Vec<String> = words.into_iter().collect();
    if words.iter().any(|word| ["-h", "-help", "--h", "--help"].contains(&word.as_str())) {
        // A closed stdout wants no help.
        drop(io::stdout().write_all(USAGE.as_bytes()));
        return 0;
    }
    let flags = match Flags::parse(words) {
        Ok(flags) => flags,
        Err(why) => {
            tracing::error!("cannot start the dhcp daemon: {why}\n{USAGE}");
            return 2;
        }
    };
    match run(flags) {
        Ok(()) => 0,
        Err(why) => {
            tracing::error!("cannot run the dhcp daemon: {why}");
            1
        }
    }
}

/// The kernel's limit for a process is 1024 files unless it asks for more, and an exchange has four open: after a server's
/// absence all leases look for it at once.
fn allow_files() {
    let raised =
        getrlimit(Resource::RLIMIT_NOFILE).and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files stays");
    }
}

fn run(flags: Flags) -> Result<(), String> {
    allow_files();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("the kernel gave no event loop: {error}"))?;
    LocalSet::new().block_on(&runtime, async {
        // Before the socket: a signal that comes now must not leave it behind.
        let mut signals = Signals::hear([SIGTERM, SIGINT]);
        let listening = listen::Listening::open(&flags)?;
        let folder = lease_files::folder(&flags.on_host(&flags.socket.to_string_lossy()));
        let boot = Boot::read().map_err(|error| error.to_string())?.id;
        let (tasks, next_number) = (RefCell::default(), Cell::new(0));
        let shared = Rc::new(Shared { flags, folder, boot, order_within: ORDER_WITHIN, tasks, next_number });
        shared.resume()?;
        spawn_local(accept_all(Rc::clone(&shared), listening.listener()?));
        if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
            tracing::warn!(%error, "systemd cannot be notified");
        }
        tracing::info!(socket = %listening, leases = shared.tasks.borrow().len(), "the dhcp daemon is ready");
        signals.next().await;
        tracing::info!("the dhcp daemon ends, and leaves the leases to the next one");
        listening.close();
        Ok(())
    })
}

async fn accept_all(shared: Rc<Shared>, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(spawn_local(serve(Rc::clone(&shared), stream))),
            Err(error) => {
                // No file or memory is free. The caller waits in the queue until something is.
                tracing::error!(%error, "cannot accept a call");
                tokio::time::sleep_until(tokio::time::Instant::now() + Duration::from_secs(1)).await;
            }
        }
    }
}

impl Shared {
    /// Goes on with the leases of an earlier daemon; those that DEL has noted are given back.
    fn resume(self: &Rc<Self>) -> Result<(), String> {
        for record in lease_files::list(&self.folder)? {
            let names = record.subject.names.clone();
            if record.boot != self.boot {
                tracing::info!(?names, "the lease is of an earlier boot, and is dropped");
                lease_files::remove(&self.folder, &names)?;
                continue;
            }
            let is_released = record.is_released;
            self.spawn(LeaseTask::resume(Rc::clone(self), record), names.clone(), None);
            if is_released {
                let shared = Rc::clone(self);
                spawn_local(async move {
                    tracing::info!(?names, "the lease is given back, as DEL was called meanwhile");
                    if let Err(error) = shared.release(&names).await {
                        tracing::error!(?names, %error, "the lease is not given back");
                    }
                });
            }
        }
        Ok(())
    }

    fn spawn(self: &Rc<Self>, task: LeaseTask, names: Names, first: Option<First>) {
        let (orders, inbox) = mpsc::channel(4);
        let number = self.next_number.replace(self.next_number.get() + 1);
        self.tasks.borrow_mut().insert(names.clone(), Handle { number, orders });
        let shared = Rc::clone(self);
        spawn_local(async move {
            task.keep(inbox, first).await;
            let mut tasks = shared.tasks.borrow_mut();
            if tasks.get(&names).is_some_and(|handle| handle.number == number) {
                tasks.remove(&names);
            }
        });
    }

    /// The lease that an attachment has, or a new one.
    async fn add(self: &Rc<Self>, subject: Subject) -> Result<Granted, CniError> {
        let names = subject.names.clone();
        if let Ok(record) = self.check(&names).await {
            let Subject { index, mac, .. } = record.subject;
            let is_same = Subject { index, mac, ..subject.clone() } == record.subject;
            if let Some(granted) = record.granted().filter(|_| is_same) {
                return Ok(granted);
            }
        }
        self.release(&names).await?;
        let task = LeaseTask::begin(Rc::clone(self), subject)?;
        let (first, outcome) = oneshot::channel();
        self.spawn(task, names, Some(first));
        outcome
            .await
            .unwrap_or_else(|_| Err(CniError::new(Code::INTERRUPTED, "DEL was called while ADD waited for a lease")))
    }

    /// Gives back the lease, if there is one. A lease task that has not done so by the deadline may still have the lease: it is
    /// not replaced, as it would release and forget its successor's.
    async fn release(&self, names: &Names) -> Result<(), CniError> {
        let (done, outcome) = oneshot::channel();
        let forgotten = match self.order(names, Order::Release(done), outcome).await? {
            Some(forgotten) => forgotten,
            // A record that could not be read has no lease task.
            None => lease_files::remove(&self.folder, names),
        };
        forgotten.map_err(|why| CniError::new(Code::STATE, format!("cannot forget the lease: {why}")))
    }

    async fn check(&self, names: &Names) -> Result<LeaseRecord, CniError> {
        let (answer, outcome) = oneshot::channel();
        let failed = |why: &str| {
            let Names { network, container_id, ifname } = names;
            let msg = format!(
                "the dhcp daemon has no lease for {ifname} of container {container_id} in network {network}: {why}"
            );
            CniError::new(Code::CHECK_FAILED, msg)
        };
        match self.order(names, Order::Check(answer), outcome).await? {
            Some(checked) => checked.map_err(|why| failed(&why)),
            None => Err(failed("none was asked for")),
        }
    }

    async fn gc(&self, network: &str, sweep: &Sweep<Names>) -> Result<(), CniError> {
        let swept = sweep.by(Names::clone);
        let is_stale = |names: &&Names| names.network == network && swept.has(*names);
        let stale: Vec<Names> = self.tasks.borrow().keys().filter(is_stale).cloned().collect();
        let mut errors = Vec::new();
        for names in stale {
            tracing::info!(?names, "the lease of an attachment that is gone is given back");
            errors.extend(self.release(&names).await.err());
        }
        CniError::join(errors).map_or(Ok(()), Err)
    }

    async fn list(&self) -> Vec<LeaseRecord> {
        let all: Vec<Names> = self.tasks.borrow().keys().cloned().collect();
        let mut records = Vec::new();
        for names in all {
            let (answer, outcome) = oneshot::channel();
            match self.order(&names, Order::Report(answer), outcome).await {
                Ok(record) => records.extend(record.flatten()),
                Err(error) => tracing::warn!(%error, "the list is without this lease"),
            }
        }
        records
    }

    /// Has a lease task carry out an order; `None` if there is none, or it has ended.
    async fn order<T>(
        &self,
        names: &Names,
        order: Order,
        outcome: oneshot::Receiver<T>,
    ) -> Result<Option<T>, CniError> {
        let Some(orders) = self.tasks.borrow().get(names).map(|handle| handle.orders.clone()) else {
            return Ok(None);
        };
        let carried_out = async {
            orders.send(order).await.ok()?;
            outcome.await.ok()
        };
        tokio::time::timeout(self.order_within, carried_out).await.map_err(|_elapsed| {
            let Names { network, container_id, ifname } = names;
            let within = self.order_within;
            let msg = format!(
                "the dhcp daemon's task for {ifname} of container {container_id} in network {network} has not answered \
                 within {within:?}"
            );
            CniError::new(Code::TIMEOUT, msg).detail("Repeat the call; the lease is kept as long as the daemon has it.")
        })
    }
}

/// How long a caller may take to say what it wants, and to read the reply.
const SPEAKS_WITHIN: Duration = Duration::from_secs(10);

/// Go's net/rpc over HTTP prints the status to the reference plugin's user.
const TO_THE_REFERENCE: &str =
    "HTTP/1.0 501 this is another suite's dhcp daemon, stop it and start the reference plugins' own\r\n\r\n";

async fn serve(shared: Rc<Shared>, mut stream: UnixStream) {
    let served = async {
        let line = within(read_line(&mut stream)).await?;
        let reply = match line.starts_with("CONNECT ") {
            true => TO_THE_REFERENCE.as_bytes().to_vec(),
            false => {
                let outcome = match parse(&line) {
                    Ok(request @ Request::Add { .. }) => {
                        // A caller that has ended needs no lease: its ADD has failed.
                        let work = answer(&shared, request);
                        tokio::select! {
                            // The work comes first, so a caller that has ended already leaves the same line in the log.
                            biased;
                            outcome = work => outcome,
                            () = hung_up(&mut stream) => return Err(io::ErrorKind::ConnectionReset.into()),
                        }
                    }
                    // A lease is given back also for a DEL that did not wait any longer.
                    Ok(request) => answer(&shared, request).await,
                    Err(error) => Err(error),
                };
                rpc::line(&match outcome {
                    Ok(value) => DaemonReply::Done(value),
                    Err(CniError { code, msg, details, .. }) => DaemonReply::Failed { code: code.0, msg, details },
                })?
            }
        };
        within(stream.write_all(&reply)).await
    };
    if let Err(error) = served.await {
        tracing::debug!(%error, "a call was broken off");
    }
}

async fn within<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(SPEAKS_WITHIN, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn read_line(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut line).await?;
    Ok(line)
}

/// Waits for the end of the connection; a caller sends nothing behind its request.
async fn hung_up(stream: &mut UnixStream) {
    let mut byte = [0; 1];
    while stream.read(&mut byte).await.is_ok_and(|count| count > 0) {}
}

fn parse(line: &str) -> Result<Request, CniError> {
    let invalid = |why: String| {
        CniError::new(Code::DECODING, format!("the dhcp daemon cannot read the request: {why}"))
            .detail("Plugin and daemon have to be of one version: restart the daemon after an upgrade.")
    };
    let Envelope { cni_dhcp, request } = serde_json::from_str(line).map_err(|error| invalid(error.to_string()))?;
    match cni_dhcp == VERSION {
        true => Ok(request),
        false => Err(invalid(format!("it is of version {cni_dhcp} of the protocol, the daemon of {VERSION}"))),
    }
}

async fn answer(shared: &Rc<Shared>, request: Request) -> Result<Value, CniError> {
    match request {
        Request::Add { names, sandbox, client_id, provide, request, priority, extras } => {
            let (index, mac) = (0, [0; 6]);
            shared
                .add(Subject { names, sandbox, index, mac, client_id, provide, request, priority, extras })
                .await
                .and_then(value)
        }
        Request::Check { names } => shared.check(&names).await.and_then(|record| value(record.granted())),
        Request::Del { names } => shared.release(&names).await.and_then(value),
        Request::Gc { network, valid, seen } => shared.gc(&network, &Sweep { valid, seen }).await.and_then(value),
        Request::Status => Ok(json!({})),
        Request::List => value(shared.list().await),
    }
}

fn value(done: impl Serialize) -> Result<Value, CniError> {
    serde_json::to_value(done).map_err(|error| CniError::new(Code::INTERNAL, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(order_within: Duration) -> Shared {
        Shared {
            flags: Flags::parse([]).unwrap(),
            folder: PathBuf::new(),
            boot: String::new(),
            order_within,
            tasks: RefCell::default(),
            next_number: Cell::new(0),
        }
    }

    /// The lease would be released and forgotten later, when another lease task may have the same one.
    #[test]
    fn lease_of_a_silent_keeper_is_not_reported_as_given_back() {
        let names = Names { network: "net".into(), container_id: "c1".into(), ifname: "eth0".into() };
        let shared = shared(Duration::from_millis(20));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            assert_eq!(shared.release(&names).await, Ok(()), "there is no lease task");
            let (orders, mut inbox) = mpsc::channel(1);
            shared.tasks.borrow_mut().insert(names.clone(), Handle { number: 0, orders });
            // The second order does not even find a place in the queue.
            for _ in 0..2 {
                let error = shared.release(&names).await.unwrap_err();
                assert_eq!(error.code, Code::TIMEOUT);
                assert!(error.msg.contains("eth0 of container c1 in network net"), "{error}");
            }
            assert_eq!(shared.check(&names).await.unwrap_err().code, Code::TIMEOUT);
            inbox.close();
            assert_eq!(shared.release(&names).await, Ok(()), "the lease task has ended");
        });
    }
}
