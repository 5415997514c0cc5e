//! The command line's arguments.

mod cluster;
mod values;

pub(crate) use cluster::{Cluster, Phase, Shared};

use crate::install::platforms;
use crate::shell_words::word;
use crate::{completions, help};
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::parser::ValueSource;
use clap::{ArgGroup, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use clap_complete::engine::ArgValueCompleter;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::SystemTime;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the operation failed; stderr says why
  2    the command line is wrong
  130  interrupted by SIGINT (129 SIGHUP, 143 SIGTERM); ADD was rolled back";

const PLAN_EXIT_CODES: &str = "\
Exit codes:
  0    ADD would begin with what is shown
  1    ADD would fail; the plan, or stderr, says why
  2    the command line is wrong";

const DOCTOR_EXIT_CODES: &str = "\
Exit codes:
  0    no faults, or notes only
  1    doctor itself failed; stderr says why
  2    the command line is wrong
  3    there are warnings
  4    there are errors
  5    no faults were found, but some rules that may drop packets were not
       examined; they are named";

/// Adds containers to CNI networks, removes them, and installs plugins.
#[derive(Debug, Parser)]
#[command(name = "cnitool", version = crate::RELEASE, term_width = 80)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Parses the command line.
///
/// Common options are options of every verb, and clap creates each of them for each verb before it reads an argument:
/// 0.05 ms of each call. So it first gets only the verbs that the arguments name, which are enough if there is no error
/// and no request for help.
/// Errors: the arguments are wrong, or ask for help or the version: clap's text.
pub(crate) fn parse(words: &[OsString]) -> Result<Cli, clap::Error> {
    let verbs = Verb::augment_subcommands(Command::new("cnitool"));
    let is_named = |verb: &&Command| {
        let mut names = std::iter::once(verb.get_name()).chain(verb.get_all_aliases());
        names.any(|name| words.iter().any(|word| word == name))
    };
    let named = verbs.get_subcommands().filter(is_named);
    let few = Common::augment_args(Command::new("cnitool")).subcommands(named.cloned());
    parse_by(few, words).or_else(|_| parse_by(help::in_groups(grammar()), words))
}

/// All verbs, with all of their help: of the common options each shows those that it uses.
pub(crate) fn grammar() -> Command {
    help::with_used_options(help::with_examples(Cli::command()))
}

/// The common options among words that need not be a complete command line.
pub(crate) fn common(words: &[OsString]) -> Option<Common> {
    let matches = Cli::command().ignore_errors(true).try_get_matches_from(words).ok()?;
    Common::from_arg_matches(&matches).ok()
}

fn parse_by(grammar: Command, words: &[OsString]) -> Result<Cli, clap::Error> {
    // Never freed, as the process ends with it: freeing would take a fifth of the time that parsing takes.
    let grammar = Box::leak(Box::new(grammar));
    let matches = grammar.try_get_matches_from_mut(words)?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    let is_typed = |id: &&str| {
        let levels = [Some(&matches), matches.subcommand().map(|(_, below)| below)];
        let sources = levels.into_iter().flatten().filter_map(|level| level.value_source(id));
        sources.max() == Some(ValueSource::CommandLine)
    };
    cli.common.typed = NODE_OPTIONS.into_iter().filter(is_typed).collect();
    Ok(cli)
}

/// The options that say which node is meant: a remedy that names a verb of this program needs them again.
const NODE_OPTIONS: [&str; 3] = ["conf_dir", "cni_path", "cache_dir"];

/// Options of every verb. The variables are the reference's.
#[derive(Debug, Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// Folder of network configurations [default: /etc/cni/net.d]
    #[arg(long, global = true, value_name = "DIR", env = "NETCONFPATH", hide_env = true, value_parser = values::maybe_empty())]
    pub(crate) conf_dir: Option<PathBuf>,
    /// Folders of plugins, by colons [default: /opt/cni/bin, the runtime's, cnitool's own]
    #[arg(long, global = true, value_name = "DIRS", env = "CNI_PATH", hide_env = true)]
    pub(crate) cni_path: Option<String>,
    /// Folder of the cache
    #[arg(long, global = true, value_name = "DIR", default_value = libcni::cache::DEFAULT_DIR)]
    pub(crate) cache_dir: PathBuf,
    /// The container's interface [default: eth0]
    #[arg(short, long, global = true, value_name = "NAME", env = "CNI_IFNAME", hide_env = true)]
    pub(crate) ifname: Option<String>,
    /// The container [default: a hash of the namespace's path]
    #[arg(long, global = true, value_name = "ID", add = ArgValueCompleter::new(completions::containers))]
    pub(crate) container_id: Option<String>,
    /// Arguments, KEY=VALUE;KEY=VALUE
    #[arg(long, global = true, value_name = "PAIRS", env = "CNI_ARGS", hide_env = true)]
    pub(crate) args: Option<String>,
    /// Capability arguments, a JSON object
    #[arg(long, global = true, value_name = "JSON", env = "CAP_ARGS", hide_env = true)]
    pub(crate) cap_args: Option<String>,
    /// Time for one plugin; then as long again, 5 seconds at most, to end
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = libcni::DEFAULT_DEADLINE.as_secs(), value_parser = values::seconds)]
    pub(crate) timeout: u64,
    /// Print JSON: tables as arrays, errors as error objects
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Report on stderr which plugin ran, and for how long; -vv also what else this program does
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// The options for folders that the command line has: a variable also holds for the commands of a remedy.
    #[arg(skip)]
    pub(crate) typed: Vec<&'static str>,
}

impl Common {
    /// The options for folders that the command line has, as words for a shell.
    pub(crate) fn folders(&self) -> Vec<String> {
        let value = |id: &str| match id {
            "conf_dir" => self.conf_dir.as_ref().map(|dir| dir.display().to_string()),
            "cni_path" => self.cni_path.clone(),
            _ => Some(self.cache_dir.display().to_string()),
        };
        let option = |id: &&str| Some(format!("--{} {}", id.replace('_', "-"), word(&value(id)?)));
        self.typed.iter().filter_map(option).collect()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Add a container to a network, and print the result
    #[command(after_help = EXIT_CODES)]
    Add(Target),
    /// Show what ADD would do here and now; nothing is changed
    #[command(after_help = PLAN_EXIT_CODES)]
    Plan(Target),
    /// Check that a container's network is as ADD left it
    Check(Attached),
    /// Remove a container from a network, or from all of its own
    Del(Del),
    /// The earlier name of del --forget.
    #[command(hide = true)]
    Forget(Attached),
    /// Write anew what the node has lost of containers that live
    Repair(Repair),
    /// Remove what belongs to no container that lives
    Gc(Gc),
    /// Report whether a network can take containers
    Status(Whole),
    /// Make what the first container would: bridge, addresses, chains
    Prepare(Prepare),
    /// Print the release of plugins and the versions they support
    Version {
        /// Plugins, by name
        #[arg(value_name = "PLUGIN", add = ArgValueCompleter::new(completions::plugins))]
        plugins: Vec<String>,
    },
    /// Report faults of configurations, with file, line and remedy
    Validate(Validate),
    /// Look for faults of the node's network, with their remedies
    #[command(after_help = DOCTOR_EXIT_CODES)]
    Doctor(Doctor),
    /// Show the node's networks: bridges, ranges, attachments, leftovers
    Show(Show),
    /// Explain who has an address or port, and what becomes of packets
    Explain {
        /// A network, an address, a pod (NAMESPACE/NAME, or its name), a container's ID or how it begins, CONTAINER/IFNAME, a network namespace,
        /// a link of the host, or a port of the node (8080, 8080/tcp)
        #[arg(value_name = "NAME", value_parser = NonEmptyStringValueParser::new(), add = ArgValueCompleter::new(completions::named))]
        name: String,
        /// Show real packets of this pod, five a second at most: where each went, or which rule dropped it. So many, or until interrupted
        #[arg(long, value_name = "COUNT", num_args = 0..=1, default_missing_value = "0")]
        trace: Option<u32>,
    },
    /// List the attachments in the cache
    #[command(alias = "attachments")]
    List {
        /// Only those of this network, or of this pod or container
        #[arg(add = ArgValueCompleter::new(completions::networks_and_named))]
        name: Option<String>,
    },
    /// Show the log of calls: the last, errors, or the slowest steps
    Log(Log),
    /// Print the node's state and counts of calls for Prometheus
    Metrics(Metrics),
    /// Show, reserve and release addresses of host-local
    #[command(subcommand, subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
    Ipam(Ipam),
    /// Show and mend what nodes share by address plugin cluster
    #[command(subcommand, subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
    Cluster(Cluster),
    /// Put plugins and cnitool into a folder, all or none
    Install(Install),
    /// Compare the plugins' files with those of a release
    Verify(Verify),
    /// Print a JSON Schema or a completion script, or write man pages
    #[command(subcommand, subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
    Generate(Generate),
    /// The earlier names of what `generate` does.
    #[command(hide = true)]
    Schema {
        #[arg(default_value = "conflist")]
        name: String,
    },
    #[command(hide = true)]
    Completions { shell: Shell },
    #[command(hide = true)]
    Man { dir: PathBuf },
    /// Print the mark of this suite's executables
    #[command(hide = true)]
    Mark,
}

/// What editors, shells and readers use.
#[derive(Debug, Subcommand)]
pub(crate) enum Generate {
    /// Print a JSON Schema, for editors and other validators
    Schema {
        /// conflist, plugin, result, or a plugin's name
        #[arg(default_value = "conflist", add = ArgValueCompleter::new(completions::schemas))]
        name: String,
    },
    /// Print a completion script
    Completions { shell: Shell },
    /// Write man pages of the verbs
    Man {
        /// An existing folder, such as /usr/local/share/man; the pages are put into man1 in it
        dir: PathBuf,
    },
}

/// An attachment by network and namespace, as with the reference; or those in the cache of a container by one of its names.
#[derive(Debug, Args)]
pub(crate) struct Attached {
    /// Network, by name or file; or, alone, a pod (NAMESPACE/NAME, or its name) or how a container's ID begins: all it has
    #[arg(value_name = "NETWORK|POD", add = ArgValueCompleter::new(completions::networks_and_named))]
    pub(crate) name: String,
    /// Path of the container's network namespace, or NAMESPACE/POD or an ID: what the container has in the network
    #[arg(add = ArgValueCompleter::new(completions::namespaces_and_named))]
    pub(crate) netns: Option<String>,
}

/// What DEL is called for.
#[derive(Debug, Args)]
pub(crate) struct Del {
    #[command(flatten)]
    pub(crate) attached: Attached,
    /// Call no plugin, and only forget what the cache has: refused where the node has something of it
    #[arg(long)]
    pub(crate) forget: bool,
}

/// A network and a namespace.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    /// Network, by name, or the path of its file (with a /)
    #[arg(add = ArgValueCompleter::new(completions::networks))]
    pub(crate) network: String,
    /// Path of the container's network namespace
    #[arg(add = ArgValueCompleter::new(completions::namespaces))]
    pub(crate) netns: String,
}

/// A network as a whole.
#[derive(Debug, Args)]
pub(crate) struct Whole {
    /// Network, by name, or the path of its file (with a /)
    #[arg(add = ArgValueCompleter::new(completions::networks))]
    pub(crate) network: String,
    /// Not used; the reference wants one
    #[arg(hide = true)]
    pub(crate) _netns: Option<String>,
}

/// The network to prepare.
#[derive(Debug, Args)]
pub(crate) struct Prepare {
    /// Network, by name, or the path of its file (with a /)
    #[arg(add = ArgValueCompleter::new(completions::networks))]
    pub(crate) network: String,
    /// Also call CHECK in between: success says that the network takes containers, where STATUS is not answered
    #[arg(long)]
    pub(crate) check: bool,
}

/// The networks to validate, and how strictly.
#[derive(Debug, Args)]
pub(crate) struct Validate {
    /// Networks, by name, paths of files (with a /), or - for standard input [default: all of the folder]
    #[arg(value_name = "NETWORK", add = ArgValueCompleter::new(completions::networks))]
    pub(crate) networks: Vec<String>,
    /// Do not look for plugins on this node, nor ask them for their versions
    #[arg(long)]
    pub(crate) offline: bool,
    /// Fail on warnings, too
    #[arg(long)]
    pub(crate) strict: bool,
}

/// What doctor does.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Remove what cannot belong to a container that lives, after showing it; then look again
    #[arg(long)]
    pub(crate) fix: bool,
    /// Do not send packets of containers, which end on the node, to see what drops them
    #[arg(long)]
    pub(crate) no_probe: bool,
    /// Do not call CHECK of the attachments in the cache, which takes some milliseconds for each
    #[arg(long)]
    pub(crate) no_check: bool,
    /// Show all that CHECK says, and what repair would write, also where the cause is another finding
    #[arg(long, conflicts_with = "no_check")]
    pub(crate) check: bool,
}

/// The part of the node to show, and how.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Only this network, by name
    #[arg(add = ArgValueCompleter::new(completions::networks))]
    pub(crate) network: Option<String>,
    /// Only this network, as the word does
    #[arg(long = "network", value_name = "NETWORK", conflicts_with = "network", add = ArgValueCompleter::new(completions::networks))]
    pub(crate) only: Option<String>,
    /// Only attachments in this state (repeatable); sick: all that need a look
    #[arg(long, value_enum, value_name = "STATE")]
    pub(crate) state: Vec<State>,
    /// Count the attachments of which nothing needs a look, in place of a line for each
    #[arg(long, conflicts_with_all = ["json", "format"])]
    pub(crate) brief: bool,
    /// Print a picture: an image, a page with the image and tables, or text for Graphviz
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with = "json")]
    pub(crate) format: Option<Format>,
    /// Show it anew after each change, until SIGINT or SIGTERM; with --json an object a line
    #[arg(long, conflicts_with = "format")]
    pub(crate) watch: bool,
}

/// The state of an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum State {
    Lives,
    // No container was found that uses it, and it is younger than a minute.
    Young,
    // The answer is unknown where it could not be determined whether the container lives.
    Unknown,
    Gone,
    // Unknown, gone, of an unfinished ADD, or with a link that is down.
    Sick,
}

/// A picture's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Svg,
    Html,
    Dot,
}

/// Verbs about addresses.
#[derive(Debug, Subcommand)]
pub(crate) enum Ipam {
    /// List the addresses that are reserved: for which container, since when, and whether it lives
    List(Shown),
    /// Count the addresses that are reserved and free, by range
    Free(Shown),
    /// Reserve an address for no container, until it is released
    Reserve(OneAddress),
    /// Release an address that is reserved by hand, or for a container that is gone
    Release {
        /// Network, by name, or the path of its file (with a /)
        #[arg(add = ArgValueCompleter::new(completions::networks))]
        network: String,
        /// The address, without prefix length; or a pod (NAMESPACE/NAME, or its name) or container: all that it has
        #[arg(value_parser = values::address_or_name, add = ArgValueCompleter::new(completions::held_and_named))]
        address: String,
        /// Release it even if its container lives, which goes on using it, or if the file names no valid owner
        #[arg(long)]
        force: bool,
    },
}

/// An address of a network.
#[derive(Debug, Args)]
pub(crate) struct OneAddress {
    /// Network, by name, or the path of its file (with a /)
    #[arg(add = ArgValueCompleter::new(completions::networks))]
    pub(crate) network: String,
    /// The address, without prefix length
    #[arg(value_parser = values::address)]
    pub(crate) address: IpAddr,
}

/// The networks whose addresses are shown, and the format.
#[derive(Debug, Args)]
pub(crate) struct Shown {
    /// Networks, by name, or paths of their files (with a /) [default: all of the folder]
    #[arg(value_name = "NETWORK", add = ArgValueCompleter::new(completions::networks))]
    pub(crate) networks: Vec<String>,
    /// Print comma-separated values
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
}

/// The calls of the log to show.
#[derive(Debug, Args)]
pub(crate) struct Log {
    /// Only calls for this container: a pod (NAMESPACE/NAME, or its name), or an ID
    #[arg(add = ArgValueCompleter::new(completions::named))]
    pub(crate) container: Option<String>,
    /// Only calls that failed
    #[arg(long)]
    pub(crate) errors: bool,
    /// Only calls of this network
    #[arg(long, value_name = "NETWORK", add = ArgValueCompleter::new(completions::networks))]
    pub(crate) network: Option<String>,
    /// Only calls of this verb: ADD, DEL, CHECK, GC or STATUS
    #[arg(long, value_name = "VERB", value_parser = ["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"], ignore_case = true, hide_possible_values = true)]
    pub(crate) verb: Option<String>,
    /// Only calls that ended since then: 10m, 2h 30m, 2026-03-01 or 2026-03-01T12:00:00Z (UTC)
    #[arg(long, value_name = "TIME", value_parser = values::since)]
    pub(crate) since: Option<SystemTime>,
    /// Go on with each call as it ends, until SIGINT or SIGTERM
    #[arg(short, long, conflicts_with = "slowest")]
    pub(crate) follow: bool,
    /// The slowest steps of calls in place of the last calls
    #[arg(long)]
    pub(crate) slowest: bool,
    /// How many, at most [default: 20, and with --since all]
    #[arg(short = 'n', long, value_name = "COUNT", value_parser = values::count)]
    pub(crate) lines: Option<usize>,
    /// Which log: journal, file, or a path [default: the one that CNI_LOG or /etc/cni/log names]
    #[arg(long, value_name = "LOG")]
    pub(crate) from: Option<String>,
}

/// Where metrics go to.
#[derive(Debug, Args)]
pub(crate) struct Metrics {
    /// Write them into this file, whole: for node_exporter's textfile collector, with a name that ends in .prom
    #[arg(long, value_name = "FILE", conflicts_with = "listen")]
    pub(crate) output: Option<PathBuf>,
    /// Answer HTTP requests for /metrics on this address of the loopback, until SIGINT or SIGTERM
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = values::loopback)]
    pub(crate) listen: Option<SocketAddr>,
    /// Which log: journal, file, or a path [default: the one that CNI_LOG or /etc/cni/log names]
    #[arg(long, value_name = "LOG")]
    pub(crate) from: Option<String>,
}

/// What GC keeps.
#[derive(Debug, Args)]
pub(crate) struct Gc {
    /// Network, by name, or the path of its file (with a /) [default: all that the node knows]
    #[arg(add = ArgValueCompleter::new(completions::networks))]
    pub(crate) network: Option<String>,
    /// Not used; the reference wants one
    #[arg(hide = true)]
    pub(crate) _netns: Option<String>,
    /// Keep exactly these of the cache (repeatable): pods, or containers; all others are removed, also of containers that live
    #[arg(long, value_name = "POD[/IFNAME]", conflicts_with = "all", requires = "network", add = ArgValueCompleter::new(completions::container_interfaces))]
    pub(crate) keep: Vec<String>,
    /// Keep none of the cache: all are removed, also of containers that live
    #[arg(long, requires = "network")]
    pub(crate) all: bool,
    /// Remove also what the cache does not know: what other runtimes have, also of containers that live
    #[arg(long, requires = "network")]
    pub(crate) force: bool,
    /// Only show what would be deleted, and count what would be kept
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// The attachments to repair.
#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// Network, by name or file, or a pod or container [default: all that the cache has attachments of]
    #[arg(add = ArgValueCompleter::new(completions::networks_and_named))]
    pub(crate) network: Option<String>,
    /// Only show what would be repaired, and count what is as it should be
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// The plugins to install, and the folder.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("target").required(true).args(["bin_dir", "platform", "stage"])))]
pub(crate) struct Install {
    /// Target folder; made if it does not exist, which is reported
    #[arg(long, value_name = "DIR")]
    pub(crate) bin_dir: Option<PathBuf>,
    /// The folder that this platform's runtime reads; stderr says what its folders have
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(platforms::names()))]
    pub(crate) platform: Option<String>,
    /// With --platform: where the node's file system is mounted
    #[arg(long, value_name = "DIR", requires = "platform")]
    pub(crate) root: Option<PathBuf>,
    /// Variable STAGE_DIR has the folder [default: /stage]: Calico's contract
    #[arg(long)]
    pub(crate) stage: bool,
    #[arg(long, env = "STAGE_DIR", hide = true)]
    pub(crate) stage_dir: Option<OsString>,
    /// Goes on until a signal, and puts back what is removed, cut short or, with --replace-foreign, replaced
    #[arg(long)]
    pub(crate) watch: bool,
    /// Only this plugin (repeatable) [default: all but noop, which is for tests]
    #[arg(long = "plugin", value_name = "NAME", add = ArgValueCompleter::new(completions::own_plugins))]
    pub(crate) plugins: Vec<String>,
    /// none: a file for each plugin; hard: one file that has all names, for images that nothing writes into later
    #[arg(long, value_enum, value_name = "HOW", default_value_t)]
    pub(crate) link: SharedFile,
    /// The cni-plugins executable [default: the one beside cnitool]
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
    /// Replace files that are not ours; they are kept in DIR/.replaced
    #[arg(long)]
    pub(crate) replace_foreign: bool,
}

/// The folder to compare, and with which manifest.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The folder [default: that of this suite's package on this node, or /opt/cni/bin]
    pub(crate) dir: Option<PathBuf>,
    /// A release's manifest (repeatable: files may be of any of them; the first is the one that has to be complete) [default:
    /// those of this suite's packages on this node]
    #[arg(long = "manifest", value_name = "FILE")]
    pub(crate) manifests: Vec<PathBuf>,
}

/// What the names of one executable have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum SharedFile {
    // Each plugin is a file of its own, so a program that writes into one changes no other. Blocks of the disk are shared
    // where the file system can.
    #[default]
    None,
    Hard,
}

#[cfg(test)]
mod tests;
