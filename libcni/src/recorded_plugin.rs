//! The plugin of an unfinished ADD, as the cache's entry identifies it.

use nix::unistd::Pid;
use processes::ProcessId;
use std::fmt;
use std::io;
use std::str::FromStr;

/// The plugin that runs ADD of an attachment, and the runtime that started it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunningPlugin {
    pub(crate) plugin: ProcessId,
    /// `None`: an earlier version of this library has recorded the plugin.
    pub(crate) runtime: Option<ProcessId>,
}

impl RunningPlugin {
    /// The length of the text: two processes and a separator.
    pub(crate) const TEXT_BYTES: usize = 2 * ProcessId::TEXT_BYTES + 1;

    pub(crate) fn of(plugin: Pid) -> io::Result<Option<Self>> {
        let Some(plugin) = ProcessId::of(plugin)? else { return Ok(None) };
        Ok(Some(Self { plugin, runtime: ProcessId::of(Pid::this())? }))
    }

    /// The runtime of a plugin that can be seen here, if it runs and is another process than this one.
    pub(crate) fn living_runtime(&self) -> io::Result<Option<ProcessId>> {
        let Some(runtime) = &self.runtime else { return Ok(None) };
        Ok(runtime.find_here()?.filter(|runtime| runtime.pid != Pid::this()))
    }
}

/// Always of the same length. The PID namespace stands behind both: earlier versions read three words for each.
impl fmt::Display for RunningPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runtime = self.runtime.as_ref().map(ProcessId::to_string).unwrap_or_default();
        write!(f, "{} {runtime:width$}", self.plugin.clone().beside(None), width = ProcessId::TEXT_BYTES)
    }
}

impl FromStr for RunningPlugin {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split_ascii_whitespace();
        let plugin = ProcessId::parse(&mut words.by_ref().take(3)).ok_or(())?;
        let runtime = ProcessId::parse(&mut words);
        Ok(Self { plugin: plugin.beside(runtime.as_ref()), runtime })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_read_back_and_has_one_length() {
        let plugin = ProcessId::of(Pid::this()).unwrap().unwrap();
        for runtime in [None, Some(plugin.clone())] {
            let running = RunningPlugin { plugin: plugin.clone().beside(runtime.as_ref()), runtime };
            assert_eq!(running.to_string().len(), RunningPlugin::TEXT_BYTES);
            assert_eq!(running.to_string().parse(), Ok(running));
        }
        // As earlier versions wrote it.
        let plugin = plugin.beside(None);
        assert_eq!(plugin.to_string().parse(), Ok(RunningPlugin { plugin, runtime: None }));
        assert!("1 2".parse::<RunningPlugin>().is_err());
    }
}
