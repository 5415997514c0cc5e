//! The kit's own IPAM plugin: it stands in where a subject has none, and is the witness of how a plugin delegates.
//!
//! The plugin is the kit's executable under the name [`NAME`] in the testbed's bin dir. It hands out an address to each
//! attachment, writes down each call, and does what it is ordered to. What it knows lies below the testbed's work dir.

use crate::finding::quoted;
use crate::result_conversion;
use crate::spec_version;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The plugin's name: `ipam.type`, and the name of the executable.
pub const NAME: &str = "kit-ipam";

/// As [`testns::Node::work_dir`] has it: the plugin is a process of its own, which cannot be given it.
const FOLDER: &str = "/run/testns/kit-ipam";

/// The `ipam` object of a config that uses it, with IPv6 addresses beside those of IPv4 if wanted.
pub fn config(with_ipv6: bool) -> Value {
    json!({ "type": NAME, "withIPv6": with_ipv6 })
}

/// The same in place of another: families and routes as that one's. A plugin that makes default routes itself may not
/// want more of them.
pub fn in_place_of(ipam: &Value) -> Value {
    let mut config = config(ipam.to_string().contains("::"));
    config["routes"] = ipam.get("routes").cloned().unwrap_or_else(|| json!([]));
    config
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpamCall {
    pub verb: String,
    pub environment: BTreeMap<String, String>,
    pub stdin: String,
}

impl IpamCall {
    /// Returns the call's config; `null` if that was no JSON.
    pub fn config(&self) -> Value {
        serde_json::from_str(&self.stdin).unwrap_or_default()
    }
}

/// An action of the plugin in place of its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    Fail {
        code: u64,
        msg: String,
    },
    /// Prints this text and ends with this status.
    Print {
        /// The whole of stdout.
        stdout: String,
        exit: u8,
    },
    Hang,
}

/// The state that the plugin keeps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Ledger {
    orders: BTreeMap<String, Order>,
    /// Container ID and interface name of each attachment that has an address, with its number.
    held: BTreeMap<String, u16>,
    last: u16,
}

/// The kit's end of it: that of the calling process's testbed.
#[derive(Debug, Clone, Copy)]
pub struct KitIpam;

impl KitIpam {
    /// Returns the plugin's calls since the testbed was made or they were last forgotten, in order.
    pub fn calls(&self) -> Vec<IpamCall> {
        let text = with_ledger(|_| fs::read_to_string(path("calls")).unwrap_or_default());
        let read = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("cannot read {line}: {error}"));
        text.lines().map(read).collect()
    }

    /// Verbs of its calls, in order, but for VERSION, which any process may call at any time.
    pub fn verbs(&self) -> Vec<String> {
        self.calls().into_iter().map(|call| call.verb).filter(|verb| verb != "VERSION").collect()
    }

    pub fn forget_calls(&self) {
        with_ledger(|_| fs::remove_file(path("calls")).ok());
    }

    /// Orders what it does when it is called with a verb, from now on; `None` for its work.
    pub fn order(&self, verb: impl std::fmt::Display, order: Option<Order>) {
        let ledger = with_ledger(|ledger| {
            match order {
                Some(order) => ledger.orders.insert(verb.to_string(), order),
                None => ledger.orders.remove(&verb.to_string()),
            };
            json!(ledger).to_string()
        });
        testns::step(format!("mkdir -p {FOLDER}; printf %s {} >{FOLDER}/ledger", quoted(&ledger)));
    }

    /// Forgets who has an address.
    pub fn lose_all(&self) {
        with_ledger(|ledger| ledger.held.clear());
    }

    /// Attachments that have an address, as `CONTAINERID IFNAME`.
    pub fn held(&self) -> Vec<String> {
        with_ledger(|ledger| ledger.held.keys().cloned().collect())
    }
}

fn with_ledger<T>(work: impl FnOnce(&mut Ledger) -> T) -> T {
    try_with_ledger(work).unwrap_or_else(|error| panic!("cannot use the ledger in {FOLDER}: {error}"))
}

fn try_with_ledger<T>(work: impl FnOnce(&mut Ledger) -> T) -> io::Result<T> {
    fs::create_dir_all(FOLDER)?;
    let lock = File::create(path("lock"))?;
    lock.lock()?;
    let mut ledger: Ledger = match fs::read(path("ledger")) {
        Ok(bytes) => serde_json::from_slice(&bytes)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ledger::default(),
        Err(error) => return Err(error),
    };
    let done = work(&mut ledger);
    // A caller may be killed at any time, and this process with it.
    fs::write(path("ledger.new"), serde_json::to_vec(&ledger)?)?;
    fs::rename(path("ledger.new"), path("ledger"))?;
    Ok(done)
}

fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Adds a line: reading and writing all of them would take long after thousands of calls.
fn write_down(call: &IpamCall) -> io::Result<()> {
    let mut file = File::options().create(true).append(true).open(path("calls"))?;
    file.write_all(format!("{}\n", serde_json::to_string(call)?).as_bytes())
}

pub fn install(bin_dir: &Path, kit: &Path) -> io::Result<PathBuf> {
    let path = bin_dir.join(NAME);
    std::os::unix::fs::symlink(kit, &path)?;
    Ok(path)
}

struct Reply {
    stdout: String,
    exit: u8,
}

/// The plugin's `main`. Returns the exit status.
pub fn main() -> u8 {
    let mut stdin = String::new();
    io::stdin().lock().read_to_string(&mut stdin).ok(); // what is not UTF-8 is no config
    let environment = std::env::vars_os();
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let environment: BTreeMap<_, _> = environment.map(|(name, value)| (text(name), text(value))).collect();
    let verb = environment.get("CNI_COMMAND").cloned().unwrap_or_default();
    let call = IpamCall { verb, environment, stdin };
    let reply = match try_with_ledger(|ledger| write_down(&call).map(|()| ledger.answer(&call))).flatten() {
        Ok(Some(reply)) => reply,
        Ok(None) => loop {
            std::thread::park(); // ordered to hang
        },
        Err(error) => failed(&call.config(), 5, &format!("cannot use the kit's ledger: {error}")),
    };
    match io::stdout().write_all(reply.stdout.as_bytes()) {
        Ok(()) => reply.exit,
        Err(_closed) => 1,
    }
}

impl Ledger {
    /// Answers a call; `None`: never.
    fn answer(&mut self, call: &IpamCall) -> Option<Reply> {
        match self.orders.get(&call.verb) {
            Some(Order::Hang) => None,
            Some(Order::Print { stdout, exit }) => Some(Reply { stdout: stdout.clone(), exit: *exit }),
            Some(Order::Fail { code, msg }) => Some(failed(&call.config(), *code, msg)),
            None => Some(self.work(call)),
        }
    }

    fn work(&mut self, call: &IpamCall) -> Reply {
        let config = call.config();
        let version = config["cniVersion"].as_str().unwrap_or("0.1.0");
        let variable = |name: &str| call.environment.get(name).map(String::as_str).unwrap_or_default();
        let attachment = format!("{} {}", variable("CNI_CONTAINERID"), variable("CNI_IFNAME"));
        let printed = |value: Value| Reply { stdout: value.to_string(), exit: 0 };
        let nothing = Reply { stdout: String::new(), exit: 0 };
        match call.verb.as_str() {
            "VERSION" => printed(json!({ "cniVersion": version, "supportedVersions": spec_version::VERSIONS })),
            "ADD" => {
                let number = self.reserve(attachment);
                printed(result_conversion::in_version(&result(number, &config["ipam"]), version))
            }
            "DEL" => {
                self.held.remove(&attachment);
                nothing
            }
            "CHECK" if !self.held.contains_key(&attachment) => {
                failed(&config, 100, &format!("{attachment} has no address"))
            }
            "GC" => {
                let valid = config["cni.dev/valid-attachments"].as_array().cloned().unwrap_or_default();
                let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
                let valid: Vec<_> =
                    valid.iter().map(|a| format!("{} {}", text(a, "containerID"), text(a, "ifname"))).collect();
                self.held.retain(|held, _| valid.contains(held));
                nothing
            }
            "CHECK" | "STATUS" => nothing,
            other => failed(&config, 4, &format!("unknown CNI_COMMAND: {other}")),
        }
    }

    /// The number of an attachment, a new one if it has none.
    fn reserve(&mut self, attachment: String) -> u16 {
        let held: Vec<u16> = self.held.values().copied().collect();
        let last = &mut self.last;
        *self.held.entry(attachment).or_insert_with(|| {
            let after = |number: u16| if number < 60_000 { number + 1 } else { 2 };
            let mut next = after((*last).max(1));
            while held.contains(&next) && next != *last {
                next = after(next);
            }
            *last = next;
            next
        })
    }
}

/// The result for an attachment in the newest form: `ipam.addresses`, `ipam.routes` and `ipam.dns` if the config has
/// them, else an address of 10.88.0.0/16, perhaps one of fd88::/64. No route that was not asked for: a plugin may make
/// default routes itself.
fn result(number: u16, ipam: &Value) -> Value {
    let [high, low] = number.to_be_bytes();
    let mut ips = vec![json!({ "address": format!("10.88.{high}.{low}/16"), "gateway": "10.88.0.1" })];
    if ipam["withIPv6"] == json!(true) {
        ips.push(json!({ "address": format!("fd88::{number:x}/64"), "gateway": "fd88::1" }));
    }
    let given = |key: &str| ipam.get(key).cloned();
    let mut result = json!({
        "cniVersion": "1.1.0",
        "ips": given("addresses").unwrap_or(Value::Array(ips)),
        "routes": given("routes").unwrap_or_else(|| json!([])),
    });
    if let Some(dns) = given("dns") {
        result["dns"] = dns;
    }
    result
}

fn failed(config: &Value, code: u64, msg: &str) -> Reply {
    let version = config["cniVersion"].as_str().unwrap_or("0.1.0");
    Reply { stdout: json!({ "cniVersion": version, "code": code, "msg": msg }).to_string(), exit: 1 }
}
