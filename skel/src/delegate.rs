//! Calls an IPAM plugin as a runtime would (SPEC 4): with the same environment except for the verb, and the same stdin.
//!
//! When the executable found in `CNI_PATH` is of this very build, by its build ID, the plugin runs in this process: it
//! gets the same variables and bytes, its reply is parsed as a child's would be, and a fork, an exec and a wait are
//! saved.

use crate::call::Call;
use crate::event_loop;
use crate::plugin::{self, Entry};
use crate::record::Timer;
use cni_spec::exec::{self, Exit, Group, Output, Stderr};
use cni_spec::{AddResult, Attachment, CniError, Code, Command, PluginType, SpecVersion, gc, json};
use cni_suite::Repaired;
use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// How long a delegate may take. DHCP may need a minute or more; a kubelet gives up after 220 s.
pub const DEADLINE: Duration = Duration::from_secs(180);

/// Another plugin, called with this call's own parameters.
pub struct Delegate<'a> {
    call: &'a Call,
    plugin: &'a PluginType,
    version: SpecVersion,
    found: OnceCell<Found>,
}

/// The file of a delegate, and the entry that serves it in this process, if the file is of this very build.
struct Found {
    executable: PathBuf,
    entry: Option<&'static Entry>,
}

/// Checks that `plugin` can be an address plugin: one of this executable that delegates would find itself in
/// `ipam.type`, and recurse without end, in this process or as a child. A name that only resembles an entry's may be
/// another plugin's, unless its file is of this build.
/// Errors: code 7 naming key and value.
pub(crate) fn check(call: &Call, plugin: &PluginType) -> Result<(), CniError> {
    let name = plugin.as_str();
    let is_own = |entry: &Entry| {
        let find_file = || call.env.plugin_path().find_executable(plugin);
        entry.name == name || find_file().is_ok_and(|file| may_be_in(&file))
    };
    if plugin::find(call.entries, name).is_none_or(|entry| !entry.delegates || !is_own(entry)) {
        return Ok(());
    }
    let msg = format!("cannot use network config: key ipam.type = {name:?}: it calls an address plugin, and is none");
    let known = call.entries.iter().filter(|entry| !entry.delegates).map(|entry| entry.name).collect::<Vec<_>>();
    let advice = match known.as_slice() {
        [] => "Name an address plugin, such as host-local.".to_owned(),
        known => {
            format!("Name an address plugin. Plugins of this executable that call no other: {}.", known.join(", "))
        }
    };
    Err(CniError::new(Code::INVALID_CONFIG, msg).detail(advice))
}

impl<'a> Delegate<'a> {
    pub(crate) fn new(call: &'a Call, plugin: &'a PluginType, version: SpecVersion) -> Self {
        Self { call, plugin, version, found: OnceCell::new() }
    }

    /// The plugin's file name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.plugin.as_str()
    }

    /// Whether `CNI_PATH` has it.
    #[must_use]
    pub fn is_installed(&self) -> bool {
        self.find().is_ok()
    }

    /// Whether no folder of `CNI_PATH` has the executable.
    pub(crate) fn is_missing(&self) -> bool {
        self.find().is_err_and(|error| error.code == Code::DELEGATE)
    }

    /// Whether the executable is a plugin of this very build, which runs in this process.
    #[must_use]
    pub fn is_of_this_build(&self) -> bool {
        self.find().is_ok_and(|found| found.entry.is_some())
    }

    /// Whether a dropped or failed ADD has changed nothing, see [`crate::Plugin::ALL_OR_NOTHING`]. Never true for a plugin
    /// that runs as a process of its own.
    #[must_use]
    pub fn is_all_or_nothing(&self) -> bool {
        self.find().is_ok_and(|found| found.entry.is_some_and(|entry| entry.is_all_or_nothing))
    }

    /// Whether the delegate's ADD may look for the container's link: it is a plugin of this executable that says so, or one that runs
    /// as a process of its own.
    ///
    /// # Errors
    /// Code 108 if it cannot be found.
    pub fn may_look_for_link(&self) -> Result<bool, CniError> {
        Ok(self.find()?.entry.is_none_or(|entry| entry.needs_link))
    }

    /// Whether the delegate's DEL sends on the container's link, as dhcp does to release a lease. This goes by the plugin's name,
    /// whichever make or build its file is of.
    #[must_use]
    pub fn releases_by_link(&self) -> bool {
        plugin::find(self.call.entries, self.plugin.as_str()).is_some_and(|entry| entry.needs_link)
    }

    /// ADD. The caller must call [`Delegate::del`] if it or anything after it fails (SPEC 4).
    ///
    /// # Errors
    /// The delegate's own error; code 108 if it cannot be found or started, or its result is invalid.
    pub async fn add(&self) -> Result<AddResult, CniError> {
        let stdout = self.call(Command::Add).await?;
        let unusable = |error: CniError| {
            let msg = format!("cannot use the result of plugin {}: {}", self.plugin, error.msg);
            let start: String = String::from_utf8_lossy(&stdout).chars().take(200).collect();
            CniError { code: Code::DELEGATE, msg, ..error }.detail(format!("It printed {start:?}."))
        };
        let value = json::parse(&stdout).map_err(unusable)?;
        AddResult::from_value(&value, self.version).map_err(unusable)
    }

    /// DEL.
    ///
    /// # Errors
    /// As [`Delegate::add`].
    pub async fn del(&self) -> Result<(), CniError> {
        self.call(Command::Del).await.map(drop)
    }

    /// CHECK.
    ///
    /// # Errors
    /// As [`Delegate::add`].
    pub async fn check(&self) -> Result<(), CniError> {
        let stdout = self.call(Command::Check).await?;
        // A repair passes on the key by which a plugin of this suite reports differences, and does not fail for them.
        match Repaired::parse(&stdout) {
            Ok(Some(report)) if !report.left.is_empty() => {
                // The name of the plugin follows, a sentence of its own.
                let text = report.left.join("; ");
                let text = text.strip_suffix('.').unwrap_or(&text);
                Err(self.signed(CniError::new(Code::CHECK_FAILED, text)))
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// GC.
    ///
    /// # Errors
    /// As [`Delegate::add`].
    pub async fn gc(&self) -> Result<(), CniError> {
        self.call(Command::Gc).await.map(drop)
    }

    /// GC with another list than the caller's own.
    ///
    /// # Errors
    /// As [`Delegate::add`].
    pub async fn gc_but(&self, valid: &[Attachment]) -> Result<(), CniError> {
        let stdin = gc::with_valid_attachments(&self.call.read_stdin()?, valid)?;
        self.call_with(Command::Gc, Rc::from(stdin)).await.map(drop)
    }

    /// STATUS.
    ///
    /// # Errors
    /// As [`Delegate::add`]; code 50 or 51 if the delegate cannot serve ADD.
    pub async fn status(&self) -> Result<(), CniError> {
        self.call(Command::Status).await.map(drop)
    }

    async fn call(&self, command: Command) -> Result<Vec<u8>, CniError> {
        self.call_with(command, self.call.read_stdin()?).await
    }

    async fn call_with(&self, command: Command, stdin: Rc<[u8]>) -> Result<Vec<u8>, CniError> {
        let Found { executable, entry } = self.find()?;
        let timer = Timer::start();
        let output = async {
            let Some(entry) = entry else { return self.run(command, executable, &stdin).await };
            let reply = entry.answer(&self.call.for_delegate(command, stdin)).await;
            Ok(Output::new(Exit::Code(i32::from(reply.exit)), reply.stdout))
        };
        let output = event_loop::unless_refused(output).await??;
        timer.end_of(&[command.as_str(), " of ", self.plugin.as_str()]);
        output.into_stdout().map_err(|error| self.signed(error))
    }

    /// Looks for the plugin once a call, so that all that is asked about it is about one file.
    fn find(&self) -> Result<&Found, CniError> {
        if let Some(found) = self.found.get() {
            return Ok(found);
        }
        let executable = self.call.env.plugin_path().find_executable(self.plugin)?;
        let entry = plugin::find(self.call.entries, self.plugin.as_str()).filter(|entry| !entry.delegates);
        let entry = entry.filter(|_| self.call.is_all_within || is_in(&executable));
        Ok(self.found.get_or_init(|| Found { executable, entry }))
    }

    /// The delegate's error is the caller's (SPEC 4); the text names the delegate for operators.
    fn signed(&self, error: CniError) -> CniError {
        match error.details.contains("Reported by plugin ") {
            true => error, // a delegate's delegate
            false => error.detail(format!("Reported by plugin {}.", self.plugin)),
        }
    }

    async fn run(&self, command: Command, executable: &Path, stdin: &[u8]) -> Result<Output, CniError> {
        let env = self.call.env.call_env();
        let mut call = exec::Execution::new(executable, command, &env, stdin);
        call.group = Group::Callers;
        // The plugin's last words are part of the error: a kubelet's event has nothing else.
        call.stderr = Stderr::passed_on();
        call.deadline = DEADLINE;
        exec::run(call).await
    }
}

const OWN: &str = "/proc/self/exe";

/// Size of the part that is compared: an executable's header, program headers and first notes take 700 bytes.
const START_BYTES: usize = 2 << 10;

/// The start of the build ID's note (elf(5), `Elf64_Nhdr`): the length of its name, of its hash (SHA-1), and its type
/// `NT_GNU_BUILD_ID`; then the name.
const NOTE: [u8; 16] = *b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0";

/// Whether `file` may be this executable, or a copy of it: it is, or without `/proc` it is unknown.
pub(crate) fn may_be_in(file: &Path) -> bool {
    is_in(file) || !Path::new(OWN).exists()
}

/// Whether `file` is this executable, or a copy of it.
pub(crate) fn is_in(file: &Path) -> bool {
    let (Ok(own), Ok(other)) = (Path::new(OWN).metadata(), file.metadata()) else { return false };
    if (own.dev(), own.ino()) == (other.dev(), other.ino()) {
        return true;
    }
    own.len() == other.len()
        && other.is_file()
        && start_with_id(Path::new(OWN)).is_some_and(|own| start(file).ok() == Some(own))
}

fn start_with_id(file: &Path) -> Option<[u8; START_BYTES]> {
    start(file).ok().filter(|start| start.windows(NOTE.len()).any(|window| window == NOTE))
}

fn start(file: &Path) -> io::Result<[u8; START_BYTES]> {
    let mut start = [0; START_BYTES];
    File::open(file)?.read_exact_at(&mut start, 0)?;
    Ok(start)
}
