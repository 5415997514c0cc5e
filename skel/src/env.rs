//! The `CNI_*` variables: which ones a verb needs. Only this module reads the environment.

use crate::record;
use cni_spec::exec::CallEnv;
use cni_spec::{CniError, Code, Command, ContainerId, IfName, PluginPath};
use std::env::{self, VarError};

/// The variables as received, before any rule is applied.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `CNI_COMMAND`.
    pub command: String,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS`.
    pub args: String,
    /// `CNI_PATH`.
    pub path: String,
    /// `CNI_NETNS_OVERRIDE`: the container's namespace may be the plugin's own (the reference's variable).
    pub netns_override: String,
    /// `PATH`: where programs of the node are looked up. Entries that are not UTF-8 are dropped.
    pub search_path: String,
    /// Variables other than `CNI_COMMAND` that are not UTF-8, which no rule here can accept.
    pub not_utf8: Vec<&'static str>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum LogVariable {
    /// `CNI_LOG`: the level, and where the record goes.
    Log,
    /// `TRACEPARENT`, of the W3C's Trace Context.
    Trace,
    /// `CNI_LOG_WITHIN`: the call is part of one that is recorded, too.
    Within,
}

/// What a verb does with a variable (SPEC 2, the tables of each operation).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Required,
    Optional,
    Unused,
}

use Use::{Optional, Required, Unused};

/// A row of the table: a variable and its use by ADD, DEL, CHECK, GC, STATUS, VERSION.
type Row = (&'static str, [Use; 6], fn(&Environment) -> &str);

/// The table, in the order of the checks. In the specification `CNI_PATH` is optional except for GC.
const TABLE: [Row; 5] = [
    ("CNI_CONTAINERID", [Required, Required, Required, Unused, Unused, Unused], |env| &env.container_id),
    ("CNI_NETNS", [Required, Optional, Required, Unused, Unused, Unused], |env| &env.netns),
    ("CNI_IFNAME", [Required, Required, Required, Unused, Unused, Unused], |env| &env.ifname),
    ("CNI_ARGS", [Optional, Optional, Optional, Unused, Unused, Unused], |env| &env.args),
    ("CNI_PATH", [Optional, Optional, Optional, Required, Optional, Unused], |env| &env.path),
];

impl Environment {
    /// Reads the process's own variables.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub fn of_process() -> Self {
        let mut not_utf8 = Vec::new();
        let mut read = |name: &'static str| match env::var(name) {
            Ok(value) => value,
            Err(VarError::NotPresent) => String::new(),
            Err(VarError::NotUnicode(_)) => {
                not_utf8.push(name);
                String::new()
            }
        };
        let mut environment = Self {
            // A value that is not UTF-8 is no verb, and the error names it.
            command: env::var_os("CNI_COMMAND").unwrap_or_default().to_string_lossy().into_owned(),
            container_id: read("CNI_CONTAINERID"),
            netns: read("CNI_NETNS"),
            ifname: read("CNI_IFNAME"),
            args: read("CNI_ARGS"),
            path: read("CNI_PATH"),
            netns_override: read("CNI_NETNS_OVERRIDE"),
            search_path: env::var_os("PATH").unwrap_or_default().to_string_lossy().into_owned(),
            not_utf8: Vec::new(),
        };
        environment.not_utf8 = not_utf8;
        environment
    }

    /// The log level, from `CNI_LOG`: `error`, `warn`, `info`, `debug` or `trace`, before or after where the record of the call
    /// goes: `debug,journal`.
    #[must_use]
    pub fn find_log_level() -> Option<tracing::Level> {
        let value = Self::find_log(LogVariable::Log)?;
        let words = value.split(',').map(str::trim).take_while(|word| !word.starts_with('/'));
        words.filter_map(|word| word.parse().ok()).next()
    }

    /// The question of a VERSION call ([`crate::cni_ask`]).
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub(crate) fn find_question() -> Option<String> {
        env::var(crate::cni_ask::VARIABLE).ok()
    }

    /// A variable of the log of calls, if it is set and UTF-8.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub(crate) fn find_log(variable: LogVariable) -> Option<String> {
        env::var(match variable {
            LogVariable::Log => "CNI_LOG",
            LogVariable::Trace => "TRACEPARENT",
            LogVariable::Within => call_log::WITHIN,
        })
        .ok()
    }

    /// The verb; `None` for one that the specification does not know.
    #[must_use]
    pub fn find_command(&self) -> Option<Command> {
        Command::find(&self.command)
    }

    /// Checks the variables that `command` needs (`None`: an unknown verb, which needs none).
    ///
    /// # Errors
    /// Code 4: a malformed container ID or ifname at once; all missing ones together,
    /// `required env variables [A,B] missing`.
    pub fn check(&self, command: Option<Command>) -> Result<(), CniError> {
        if let [first, ..] = self.not_utf8[..] {
            return Err(CniError::new(Code::INVALID_ENVIRONMENT, format!("cannot read {first}: it is not UTF-8")));
        }
        let column = command.and_then(|command| Command::ALL.iter().position(|each| *each == command));
        let use_of = |row: &Row| column.map_or(Unused, |column| row.1[column]);
        let mut missing = Vec::new();
        if self.command.is_empty() {
            missing.push("CNI_COMMAND");
        }
        for row in TABLE.iter().filter(|row| use_of(row) == Required) {
            match (row.0, (row.2)(self)) {
                (name, "") => missing.push(name),
                ("CNI_CONTAINERID", text) => drop(ContainerId::parse(text)?),
                ("CNI_IFNAME", text) => drop(IfName::parse(text)?),
                _ => {}
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(CniError::new(Code::INVALID_ENVIRONMENT, format!("required env variables [{}] missing", missing.join(","))))
    }

    /// Whether the container's namespace may be the plugin's own.
    #[must_use]
    pub fn overrides_netns(&self) -> bool {
        self.netns_override == "1" || self.netns_override.eq_ignore_ascii_case("true")
    }

    /// The folders in which delegates are looked up.
    #[must_use]
    pub fn plugin_path(&self) -> PluginPath {
        PluginPath::parse(&self.path)
    }

    /// The same variables for a delegate, whose record is part of this call's.
    #[must_use]
    pub fn call_env(&self) -> CallEnv {
        let within = record::begin_us().map(|begin_us| (call_log::WITHIN.to_owned(), begin_us.to_string()));
        let mut env = CallEnv::default();
        env.container_id.clone_from(&self.container_id);
        env.netns.clone_from(&self.netns);
        env.ifname.clone_from(&self.ifname);
        env.args.clone_from(&self.args);
        env.path = self.plugin_path();
        env.more.extend(within);
        env
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_verb_does_not_use_are_not_looked_at() {
        let (command, path) = ("STATUS".into(), "/opt/cni/bin".into());
        let env = Environment { command, path, container_id: "../c".into(), ..Environment::default() };
        assert!(env.check(env.find_command()).is_ok());
    }

    #[test]
    fn the_override_is_1_or_true_in_any_case() {
        let says = |text: &str| Environment { netns_override: text.into(), ..Environment::default() }.overrides_netns();
        assert!(says("1") && says("true") && says("TRUE") && !says("") && !says("yes") && !says("0"));
    }
}
