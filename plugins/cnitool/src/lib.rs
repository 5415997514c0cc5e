//! The command line of `libcni`: every verb of the protocol by hand, the list of attachments, and the installation.
//!
//! Arguments, variables and the derived container ID are the reference's; each variable has an option, too. The README
//! beside this crate is the tour.

mod add;
mod args;
mod check;
mod cluster;
mod command_line_errors;
mod completions;
mod del;
pub mod doctor;
pub mod dropped_packets;
mod error_remedies;
pub mod explain;
mod folder_changes;
mod forget;
mod gc;
mod help;
mod install;
mod ipam;
pub mod keys;
mod list;
mod log;
mod man;
mod metrics;
pub mod node_networks;
mod other_projects;
mod output;
mod parsed_network;
mod plan;
mod prepare;
mod progress_line;
mod repair;
mod runtime_settings;
pub mod schema;
mod settings;
mod shell_words;
pub mod show;
mod status;
mod stderr_log;
pub mod tree_text;
mod unreserved_addresses;
pub mod validate;
mod verify;
mod version;

use args::{Cli, Generate, Verb};
use libcni::Cancellation;
use nix::libc::SIGPIPE;
use output::{Output, say};
use settings::Settings;
use skel::event_loop;
use skel::interrupt::{Signals, ending_signals, survive_file_size_limit};
use std::pin::pin;
use std::process::ExitCode;

/// The reference's release whose behaviour the suite has, with the suite's version as build metadata.
pub(crate) const RELEASE: &str = env!("SUITE_RELEASE");
/// The name of this program where plugins are.
pub(crate) const OWN_NAME: &str = "cnitool";
const FAILED: u8 = 1;
/// Added to a signal's number when that ended the operation.
const SIGNALLED: u8 = 128;

pub fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let parsed =
        completions::answer(&words).and_then(|done| if done { Ok(None) } else { args::parse(&words).map(Some) });
    let cli = match parsed {
        Ok(Some(cli)) => cli,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => return command_line_errors::report(&error, &words),
    };
    let output = Output { is_json: cli.common.json };
    stderr_log::start(cli.common.verbose, output.is_json);
    if shows_less_to_users(&cli.verb) {
        error_remedies::tell_to_be_root();
    }
    let progress = working(&cli.verb).and_then(progress_line::begin);
    survive_file_size_limit();
    let waited = event_loop::run(pin!(until_signalled(&cli, output)));
    let outcome = waited.unwrap_or_else(|(refused, _)| Err(refused.into()));
    drop(progress);
    ended(outcome, output, matches!(cli.verb, Verb::Add(_)))
}

/// The status of a program that has ended, after a report of its error.
fn ended(outcome: anyhow::Result<ExitCode>, output: Output, has_to_be_read: bool) -> ExitCode {
    match outcome {
        Ok(code) => code,
        // As other programs at the end of a pipe that reads no further; but a result that nothing has read is a failure.
        Err(error) if output::is_pipe_closed(&error) && !has_to_be_read => {
            ExitCode::from(SIGNALLED + u8::try_from(SIGPIPE).unwrap_or_default())
        }
        Err(error) => {
            output.error(&error);
            ExitCode::from(FAILED)
        }
    }
}

/// The verb's name, if it may take long and ends by itself.
fn working(verb: &Verb) -> Option<&'static str> {
    Some(match verb {
        Verb::Add(_) => "add",
        Verb::Check(_) => "check",
        Verb::Del(_) => "del",
        Verb::Repair(_) => "repair",
        Verb::Gc(_) => "gc",
        Verb::Status(_) => "status",
        Verb::Prepare(_) => "prepare",
        Verb::Version { .. } => "version",
        Verb::Validate(_) => "validate",
        Verb::Doctor(_) => "doctor",
        Verb::Show(words) if !words.watch => "show",
        Verb::Explain { .. } => "explain",
        Verb::Plan(_) => "plan",
        Verb::Ipam(_) => "ipam",
        Verb::Log(words) if !words.follow => "log",
        Verb::Metrics(words) if words.listen.is_none() => "metrics",
        Verb::Install(words) if !words.watch => "install",
        Verb::Verify(_) => "verify",
        _ => return None,
    })
}

/// Whether the verb shows of the node what it can read. Other verbs fail if they cannot read or change something.
fn shows_less_to_users(verb: &Verb) -> bool {
    match verb {
        Verb::Plan(_) | Verb::Repair(_) | Verb::Gc(_) | Verb::Status(_) | Verb::Doctor(_) => true,
        Verb::Show(_) | Verb::Explain { .. } | Verb::List { .. } | Verb::Metrics(_) => true,
        Verb::Ipam(words) => matches!(words, args::Ipam::List(_) | args::Ipam::Free(_)),
        _ => false,
    }
}

fn only_reads(verb: &Verb) -> bool {
    matches!(verb, Verb::Validate(_) | Verb::Log(_) | Verb::Metrics(_))
}

/// Runs the verb. A signal cancels it: the running plugin is terminated, an ADD is rolled back.
async fn until_signalled(cli: &Cli, output: Output) -> anyhow::Result<ExitCode> {
    event_loop::ready().await?;
    let cancellation = Cancellation::default();
    let mut work = std::pin::pin!(run(cli, output, cancellation.clone()));
    // A signal that was ignored when the process started, as by nohup, stays ignored.
    let mut signals = Signals::hear(ending_signals());
    let number = tokio::select! {
        outcome = &mut work => return outcome,
        first = signals.next() => first,
    };
    cancellation.cancel();
    // A verb that only reads has nothing to undo, and may have much to read yet.
    while !only_reads(&cli.verb) {
        tokio::select! {
            outcome = &mut work => {
                if let Err(error) = outcome {
                    output.error(&error);
                }
                break;
            }
            // A second signal: the operator no longer waits, so the plugin is killed.
            _ = signals.next() => cancellation.hurry(),
        }
    }
    Ok(ExitCode::from(SIGNALLED + u8::try_from(number).unwrap_or(0)))
}

async fn run(cli: &Cli, output: Output, cancellation: Cancellation) -> anyhow::Result<ExitCode> {
    let settings = Settings::new(&cli.common, cancellation.clone());
    match &cli.verb {
        Verb::Doctor(words) => return doctor::output_and_fix::run(&settings, words, output).await,
        Verb::Add(target) => add::run(&settings, target).await,
        Verb::Plan(target) => return plan::output::run(&settings, target, output).await,
        Verb::Check(words) => check::run(&settings, words).await,
        Verb::Del(words) => del::run(&settings, words).await,
        Verb::Forget(words) => forget::run(&settings, words).await,
        Verb::Repair(words) => repair::run(&settings, words, output).await,
        Verb::Gc(words) => gc::run(&settings, words, Some(output)).await,
        Verb::Prepare(words) => prepare::run(&settings, words, output).await,
        Verb::Status(network) => status::run(&settings, &network.network, output).await,
        Verb::Version { plugins } => version::run(&settings, plugins, output).await,
        Verb::Validate(words) => validate::output::run(&settings, words, output).await,
        Verb::Explain { name, trace: Some(most) } => explain::trace(&settings, name, *most, output, &cancellation),
        Verb::Explain { name, trace: None } => explain::run(&settings, name, output),
        Verb::Show(words) if words.watch => show::watch::run(&settings, words, output, &cancellation).await,
        Verb::Show(words) => show::run(&settings, words, output),
        Verb::List { name } => list::print(&settings, name.as_deref(), output),
        Verb::Log(words) => log::run(&settings, words, output).await,
        Verb::Metrics(words) => metrics::run(&settings, words, &cancellation).await,
        Verb::Ipam(words) => ipam::run(&settings, words, output).await,
        Verb::Cluster(words) => cluster::run(&settings, words, output),
        Verb::Install(install) => install::run(install, output, &cancellation).await,
        Verb::Verify(words) => verify::run(words, output),
        Verb::Schema { name } | Verb::Generate(Generate::Schema { name }) => schema::print(name),
        Verb::Mark => say(format!("{}\n", cni_suite::MARK).as_bytes()),
        Verb::Completions { shell } | Verb::Generate(Generate::Completions { shell }) => {
            say(&completions::script(*shell)?)
        }
        Verb::Man { dir } | Verb::Generate(Generate::Man { dir }) => man::write(dir),
    }
    .map(|()| ExitCode::SUCCESS)
}
