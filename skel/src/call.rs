//! A call of a plugin: the variables, stdin, and the other plugins in this executable.

use crate::delegate::{self, Delegate};
use crate::env::Environment;
use crate::netns::NetnsPath;
use crate::plugin::Entry;
use cni_spec::{AddResult, CniArgs, CniError, Code, Command, NetConf, json};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The maximum size of stdin. A config has some kilobytes; GC of a large node some hundred.
pub const MAX_STDIN_BYTES: u64 = 64 << 20;

/// How long VERSION waits for its input. The runtime's library writes it at once, or not at all.
const VERSION_PATIENCE: Duration = Duration::from_millis(500);

/// A call of a plugin, before any rule is applied.
#[derive(Clone)]
pub struct Call {
    /// The `CNI_*` variables.
    pub env: Environment,
    /// The plugins in this executable, for delegation in process.
    pub entries: &'static [Entry],
    /// Whether the delegates are of this build, whatever their executables: for programs that ask the plugins themselves.
    pub(crate) is_all_within: bool,
    stdin: Stdin,
    /// Opened on first use, once for this call, its delegates, and DEL after an ADD whose result was lost.
    netns: Rc<OnceCell<Option<NetnsPath>>>,
}

#[derive(Clone)]
enum Stdin {
    /// The process's stdin, read on first use, as an error of the environment must not wait for it; it is kept, for DEL
    /// after an ADD whose result could not be written.
    Process(Rc<OnceCell<Rc<[u8]>>>),
    /// The stdin that a delegating plugin passes.
    Given(Rc<[u8]>),
}

impl Call {
    /// The call that started this process.
    #[must_use]
    pub fn of_process(entries: &'static [Entry]) -> Self {
        let stdin = Stdin::Process(Rc::default());
        Self { env: Environment::of_process(), entries, is_all_within: false, stdin, netns: Rc::default() }
    }

    /// A call with these variables and this stdin, which starts no process.
    #[must_use]
    pub fn given(env: Environment, stdin: Rc<[u8]>) -> Self {
        Self { env, entries: &[], is_all_within: false, stdin: Stdin::Given(stdin), netns: Rc::default() }
    }

    pub(crate) fn as_del(&self) -> Self {
        Self { env: Environment { command: Command::Del.as_str().to_owned(), ..self.env.clone() }, ..self.clone() }
    }

    /// The same call for a delegate: only the verb changes; stdin and the namespace are the caller's.
    #[must_use]
    pub fn for_delegate(&self, command: Command, stdin: Rc<[u8]>) -> Self {
        let env = Environment { command: command.as_str().to_owned(), ..self.env.clone() };
        Self { env, stdin: Stdin::Given(stdin), ..self.clone() }
    }

    /// The same call, whose delegates are among `entries`, and answer in this process.
    #[must_use]
    pub fn within(self, entries: &'static [Entry]) -> Self {
        Self { entries, is_all_within: true, ..self }
    }

    /// The namespace that `CNI_NETNS` names: the one that a delegate's caller opened, or it is opened now, once for all
    /// uses.
    pub(crate) fn open_netns(&self) -> Option<NetnsPath> {
        self.netns.get_or_init(|| NetnsPath::open(&self.env.netns)).clone()
    }

    /// Continues as if the runtime had given no namespace, for delegates too.
    pub(crate) fn forget_netns(&mut self) {
        self.netns = Rc::new(OnceCell::from(None));
        self.env.netns.clear();
    }

    /// Reads the input of VERSION until it is one JSON value, or ends, or half a second has passed. So a person, or a
    /// runtime that leaves stdin open, gets an answer all the same.
    #[must_use]
    pub fn read_version_input(&self) -> Rc<[u8]> {
        match &self.stdin {
            Stdin::Given(bytes) => Rc::clone(bytes),
            Stdin::Process(_) => Rc::from(read_one_value(std::io::stdin().as_fd())),
        }
    }

    pub(crate) fn find_stdin(&self) -> Option<Rc<[u8]>> {
        match &self.stdin {
            Stdin::Given(bytes) => Some(Rc::clone(bytes)),
            Stdin::Process(kept) => kept.get().map(Rc::clone),
        }
    }

    /// Reads all of stdin.
    ///
    /// # Errors
    /// Code 5 if it cannot be read or is longer than [`MAX_STDIN_BYTES`].
    pub fn read_stdin(&self) -> Result<Rc<[u8]>, CniError> {
        let kept = match &self.stdin {
            Stdin::Given(bytes) => return Ok(Rc::clone(bytes)),
            Stdin::Process(kept) => kept,
        };
        if kept.get().is_none() {
            let bytes = Rc::from(read_limited(std::io::stdin().lock())?);
            return Ok(Rc::clone(kept.get_or_init(|| bytes)));
        }
        Ok(kept.get().map(Rc::clone).unwrap_or_default())
    }

    /// `PATH`, for plugins that run programs of the node.
    #[must_use]
    pub fn search_path(&self) -> &str {
        &self.env.search_path
    }

    /// The network's address plugin, if it has one. `conf` is of this call.
    #[must_use]
    pub fn ipam<'a>(&'a self, conf: &'a NetConf) -> Option<Delegate<'a>> {
        Some(Delegate::new(self, conf.ipam.as_ref()?, conf.cni_version))
    }

    /// Calls the address plugin to release its addresses, if the network has one. `conf` is of this DEL.
    ///
    /// An address plugin that no folder has gave no address at ADD either, as far as prevResult does not say otherwise: a
    /// misspelt `ipam.type` is then no reason to fail for ever.
    ///
    /// # Errors
    /// The address plugin's own. Code 108: it is not installed, and prevResult has addresses, or a config of that version has
    /// no prevResult. Code 7: prevResult has addresses, and `ipam` does not name their plugin, so they stay
    /// reserved until DEL is called with a corrected config.
    pub async fn release(&self, conf: &NetConf) -> Result<(), CniError> {
        if let Some(ipam) = self.ipam(conf) {
            if ipam.is_missing() && has_no_addresses(conf) {
                tracing::warn!(network = %conf.name, "no address is released: plugin {} is not installed", ipam.name());
                return Ok(());
            }
            return ipam.del().await;
        }
        let usable = |plugin: Option<_>| plugin.map_or(Ok(()), |plugin| delegate::check(self, &plugin));
        match conf.object().ipam_type().and_then(usable) {
            Err(error) if conf.find_prev_result().is_some_and(|prev| !prev.ips.is_empty()) => {
                Err(error.detail("The addresses of prevResult stay taken: mend the key, and call DEL again."))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Parses `CNI_ARGS`. Plugins that do not use it do not call this, and so accept anything in it.
    ///
    /// # Errors
    /// Code 4 if it is malformed.
    pub fn parse_args(&self) -> Result<CniArgs, CniError> {
        CniArgs::parse(&self.env.args)
    }
}

/// Whether the ADD that this DEL undoes has ended without addresses, or without a result.
fn has_no_addresses(conf: &NetConf) -> bool {
    let has = |prev: Option<AddResult>| prev.is_some_and(|prev| !prev.ips.is_empty());
    conf.cni_version.has_check() && conf.prev_result().is_ok_and(|prev| !has(prev))
}

fn read_one_value(from: BorrowedFd<'_>) -> Vec<u8> {
    let (start, mut bytes, mut chunk) = (Instant::now(), Vec::new(), [0; 4 << 10]);
    let complete = |bytes: &[u8]| !bytes.is_empty() && json::parse(bytes).is_ok_and(|value| value.is_object());
    while !complete(&bytes) && bytes.len() < chunk.len() * 16 {
        let left = VERSION_PATIENCE.saturating_sub(start.elapsed());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(from, PollFlags::POLLIN)], timeout) {
            Ok(1..) => {}
            _ => break,
        }
        match nix::unistd::read(from, &mut chunk) {
            Ok(count @ 1..) => bytes.extend_from_slice(&chunk[..count]),
            _ => break,
        }
    }
    bytes
}

fn read_limited(from: impl Read) -> Result<Cow<'static, [u8]>, CniError> {
    let mut bytes = Vec::with_capacity(4 << 10);
    let failed = |cause: String| CniError::new(Code::IO, format!("cannot read network config from stdin: {cause}"));
    from.take(MAX_STDIN_BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > MAX_STDIN_BYTES {
        return Err(failed(format!("it is longer than {MAX_STDIN_BYTES} bytes")));
    }
    Ok(Cow::Owned(bytes))
}
