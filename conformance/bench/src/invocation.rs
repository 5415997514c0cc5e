//! A call of an executable, ready to be made in several ways.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use testns::{Node, Output};

/// A call takes milliseconds, a hundred times that under valgrind.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// An executable with its arguments, environment and stdin.
#[derive(Debug, Clone)]
pub(crate) struct Invocation {
    pub(crate) executable: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) stdin: String,
}

impl Invocation {
    pub(crate) fn of_plugin(call: &testns::Call, node: &Node) -> Self {
        let (executable, environment, stdin) = call.invocation(node);
        Self { executable, arguments: Vec::new(), environment, stdin }
    }

    /// A call of cnitool for network `pods`.
    pub(crate) fn of_cnitool(node: &Node, verb: &str, netns: &Path) -> Self {
        let netns = netns.display().to_string();
        let environment = [("CNI_PATH", node.bin_dir()), ("NETCONFPATH", PathBuf::from(crate::scene::NET_D))];
        Self {
            executable: node.work_dir().join("cnitool"),
            arguments: vec![verb.to_lowercase(), crate::scene::NETWORK.to_owned(), netns],
            environment: environment.map(|(name, path)| (name.to_owned(), path.display().to_string())).to_vec(),
            stdin: String::new(),
        }
    }

    /// The same with another value of a variable.
    pub(crate) fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Makes it behind `before`, a program that runs programs, or by itself.
    pub(crate) fn run(&self, before: &[String]) -> Output {
        let mut arguments = before.iter().cloned().chain([self.executable.display().to_string()]);
        let mut command = Command::new(arguments.next().unwrap_or_default());
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        command.args(arguments).args(&self.arguments).env_clear().envs(environment);
        testns::run(command, self.stdin.as_bytes(), DEADLINE)
    }
}
