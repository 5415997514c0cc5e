//! How plugins are run: as processes, unless a runtime has them run otherwise.

use cni_spec::exec::{Execution, Output};
use cni_spec::{CniError, Code, PluginPath, PluginType};
use nix::errno::Errno;
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, access};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command};

/// How a [`Runtime`](crate::Runtime) runs plugins. Each method does the usual by default: an implementation is what differs.
///
/// ```
/// use libcni::cni_spec::exec::{Execution, Exit, Output};
/// use libcni::cni_spec::{CniError, PluginPath, PluginType};
/// use libcni::{RuntimeConf, Execute, NetworkConf, Runtime, blocking};
///
/// /// Plugins that are not there, and succeed.
/// #[derive(Debug)]
/// struct Fake;
///
/// impl Execute for Fake {
///     fn find(&self, plugin: &PluginType, _: &PluginPath) -> Result<std::path::PathBuf, CniError> {
///         Ok(plugin.as_str().into())
///     }
///     fn answer(&self, call: &Execution<'_>) -> Option<Output> {
///         let stdout = format!(r#"{{"cniVersion":"1.0.0","dns":{{"domain":"{}"}}}}"#, call.command);
///         Some(Output::new(Exit::Code(0), stdout.into()))
///     }
/// }
///
/// # let folder = tempfile::tempdir()?;
/// let runtime = Runtime::builder().execute(Fake).cache_dir(folder.path()).build();
/// let network = NetworkConf::parse(br#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a"}]}"#)?;
/// let result = blocking::wait(runtime.add(&network, &RuntimeConf::new("c1", "eth0")?))?;
/// assert_eq!(result.dns.domain, "ADD");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Execute: fmt::Debug + Send + Sync {
    /// Finds a plugin's executable, and checks that it is executable.
    ///
    /// # Errors
    /// Code 108 or 4: no folder has one that can be run.
    fn find(&self, plugin: &PluginType, path: &PluginPath) -> Result<PathBuf, CniError> {
        let path = path.find_executable(plugin)?;
        access(&path, AccessFlags::X_OK).map_err(|errno| {
            let is_noexec = statvfs(&path).is_ok_and(|about| about.flags().contains(FsFlags::ST_NOEXEC));
            CniError::new(Code::DELEGATE, format!("cannot run plugin {plugin}: {}: {errno}", path.display()))
                .detail(match () {
                    () if is_noexec => "Its file system is mounted noexec: mount it with exec.",
                    () if errno == Errno::EACCES => "Make it executable, by chmod 755.",
                    () => "",
                })
                .detail("Nothing was run.")
        })?;
        Ok(path)
    }

    /// Starts a plugin's process. The plugin does not get the end of its config before this returns, and so cannot begin: its
    /// pid can be moved to a cgroup here. A security context of its own is that of the thread's next exec, set before.
    ///
    /// # Errors
    /// The process cannot be started. One that was started by then has to be ended here.
    fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        command.spawn()
    }

    /// Answers a call without a process, as tests do; `None` has one started.
    fn answer(&self, _call: &Execution<'_>) -> Option<Output> {
        None
    }
}

/// Plugins are executables, run as usual.
#[derive(Debug)]
pub(crate) struct Processes;

impl Execute for Processes {}
