//! A plugin that does what its config says, for tests of what `skel` does around a plugin.
//!
//! `do`: `pass` (the default) prints prevResult or the IPAM plugin's result; `tokio` does so after what needs an event loop;
//! `panic` panics; `wait` makes the file of key
//! `file`, says so on stderr, then waits for SIGTERM and takes the file away; `layer2` answers with no address.
//! The same executable is `probe-ipam`, an address plugin that hands out the address of key `ipam.address` and
//! appends its process ID to the file of key `ipam.log`.

use cni_spec::{AddResult, CniError, Code, ConfObject, FromAnyConf, FromConf, Ip, json};
use serde::Deserialize;
use skel::{AddRequest, CheckRequest, DelRequest, Entry, GcRequest, Plugin, StatusRequest};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Deserialize, Default)]
#[serde(default)]
struct Conf {
    #[serde(rename = "do")]
    what: String,
    file: String,
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        object.decode()
    }
}

struct Removal {
    file: Option<String>,
}

impl FromAnyConf for Removal {
    fn from_any_conf(object: &ConfObject) -> Self {
        Self { file: object.find(&["file"]) }
    }
}

struct Probe;

impl Plugin for Probe {
    const NAME: &'static str = "probe";
    type Conf = Conf;
    type Removal = Removal;

    async fn add(request: &AddRequest, keys: &Conf) -> Result<AddResult, CniError> {
        match keys.what.as_str() {
            "panic" => panic!("the config asked for a panic"),
            "wait" => wait(&keys.file).await,
            "tokio" => use_tokio().await,
            "layer2" => Ok(AddResult::default()),
            _ => match request.ipam() {
                Some(ipam) => ipam.add().await,
                None => Ok(request.conf.prev_result()?.unwrap_or_default()),
            },
        }
    }

    async fn del(request: &DelRequest, keys: &Removal) -> Result<(), CniError> {
        if let Some(file) = &keys.file {
            note(file, "DEL")?;
        }
        request.release().await
    }

    async fn check(request: &CheckRequest, _: &Conf) -> Result<(), CniError> {
        match request.ipam() {
            Some(ipam) => ipam.check().await,
            None => Ok(()),
        }
    }

    async fn gc(request: &GcRequest, _: &Removal) -> Result<(), CniError> {
        match request.ipam() {
            Some(ipam) => ipam.gc().await,
            None => Ok(()),
        }
    }

    async fn status(request: &StatusRequest, _: &Conf) -> Result<(), CniError> {
        match request.ipam() {
            Some(ipam) => ipam.status().await,
            None => Ok(()),
        }
    }
}

async fn wait(file: &str) -> Result<AddResult, CniError> {
    let interrupted = skel::interrupted();
    note(file, "ADD")?;
    eprintln!("waiting");
    interrupted.await;
    std::fs::remove_file(file).map_err(|error| io(file, &error))?;
    Err(CniError::new(Code::INTERRUPTED, "interrupted by a signal"))
}

/// Calls that panic without an event loop: a timer, a socket, a task.
async fn use_tokio() -> Result<AddResult, CniError> {
    let timer = tokio::time::timeout(Duration::from_millis(1), std::future::pending::<()>());
    timer.await.expect_err("nothing ends it but the timer");
    let failed = |error: std::io::Error| CniError::new(Code::IO, format!("cannot use tokio: {error}"));
    tokio::net::UdpSocket::bind("[::]:0").await.map_err(failed)?;
    tokio::task::spawn(async {}).await.map_err(|error| failed(error.into()))?;
    Ok(AddResult::default())
}

fn note(file: &str, line: &str) -> Result<(), CniError> {
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
    opened.and_then(|mut open| writeln!(open, "{line}")).map_err(|error| io(file, &error))
}

fn io(file: &str, error: &std::io::Error) -> CniError {
    CniError::new(Code::IO, format!("cannot write {file}: {error}"))
}

struct ProbeIpam;

#[derive(Deserialize, Default)]
#[serde(default)]
struct IpamConf {
    ipam: Ipam,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Ipam {
    address: String,
    log: String,
}

impl FromConf for IpamConf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        object.decode()
    }
}

struct IpamLog(String);

impl FromAnyConf for IpamLog {
    fn from_any_conf(object: &ConfObject) -> Self {
        Self(object.find(&["ipam", "log"]).unwrap_or_default())
    }
}

/// Writes the verb and the process that ran it.
fn log(file: &str, verb: &str) -> Result<(), CniError> {
    note(file, &format!("{verb} {}", std::process::id()))
}

impl Plugin for ProbeIpam {
    const NAME: &'static str = "probe-ipam";
    const DELEGATES: bool = false;
    type Conf = IpamConf;
    type Removal = IpamLog;

    async fn add(_: &AddRequest, keys: &IpamConf) -> Result<AddResult, CniError> {
        log(&keys.ipam.log, "ADD")?;
        let bad = |why: String| CniError::new(Code::INVALID_CONFIG, format!("cannot use key ipam.address: {why}"));
        let address = json::parse_cidr(&keys.ipam.address).map_err(bad)?;
        Ok(AddResult::default().ip(Ip::new(address, None)))
    }

    async fn del(_: &DelRequest, keys: &IpamLog) -> Result<(), CniError> {
        log(&keys.0, "DEL")
    }

    async fn check(_: &CheckRequest, keys: &IpamConf) -> Result<(), CniError> {
        log(&keys.ipam.log, "CHECK")
    }

    async fn gc(_: &GcRequest, keys: &IpamLog) -> Result<(), CniError> {
        log(&keys.0, "GC")
    }

    async fn status(_: &StatusRequest, keys: &IpamConf) -> Result<(), CniError> {
        log(&keys.ipam.log, "STATUS")
    }
}

fn main() -> ExitCode {
    const ENTRIES: &[Entry] = &[Entry::of::<Probe>(), Entry::of::<ProbeIpam>()];
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    skel::run(words, ENTRIES, env!("CARGO_PKG_VERSION")).into()
}
