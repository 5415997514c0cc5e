//! Errors of the command line in the form of all others: the word that is wrong, and below it what is right.

use crate::args;
use crate::output::{Output, say};
use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use libcni::cni_spec::json::resembling;
use libcni::cni_spec::{CniError, Code};
use std::ffi::OsString;
use std::process::ExitCode;

/// Prints what clap has to say: help and the version on stdout with status 0, an error on stderr with status 2.
pub(crate) fn report(error: &clap::Error, words: &[OsString]) -> ExitCode {
    let is_json = words.iter().any(|word| word == "--json");
    match explained(error, words) {
        Some(object) => Output { is_json }.error(&object.into()),
        None => return printed(error, is_json),
    }
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Prints help or the version, which is a result like any other.
fn printed(error: &clap::Error, is_json: bool) -> ExitCode {
    crate::ended(say(error.render().to_string().as_bytes()).map(|()| ExitCode::SUCCESS), Output { is_json }, false)
}

/// An error as an object; none of help, the version, and errors that clap alone can explain.
fn explained(error: &clap::Error, words: &[OsString]) -> Option<CniError> {
    let mut grammar = args::grammar();
    let verb = Verb::find(&mut grammar, words);
    let (msg, below) = match error.kind() {
        ErrorKind::InvalidSubcommand => verb.is_unknown(&text(error, ContextKind::InvalidSubcommand)?),
        ErrorKind::MissingSubcommand => verb.lacks_a_verb(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => verb.lacks_a_verb(),
        ErrorKind::UnknownArgument => verb.has_no(&text(error, ContextKind::InvalidArg)?),
        ErrorKind::MissingRequiredArgument => verb.lacks(&list(error, ContextKind::InvalidArg)?),
        ErrorKind::InvalidValue => verb.has_other_values(error)?,
        ErrorKind::ValueValidation => verb.cannot_read(error)?,
        ErrorKind::ArgumentConflict => verb.has_either(error)?,
        ErrorKind::TooManyValues => {
            let (option, value) = (option_name(error)?, text(error, ContextKind::InvalidValue)?);
            (format!("{option} takes no value, and {value} is one"), vec![verb.help()])
        }
        ErrorKind::InvalidUtf8 => verb.has_bytes(words),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => return None,
        // No verb has them; what is left of an error of clap is its first sentence.
        _ => (error.kind().to_string(), vec![verb.help()]),
    };
    Some(CniError { details: below.join("\n"), ..CniError::new(Code::INVALID_ENVIRONMENT, msg) })
}

/// Verbs of other programs, and what does the same here.
const OF_OTHERS: [(&str, &str); 14] = [
    ("attach", "add"),
    ("detach", "del"),
    ("ls", "list"),
    ("get", "list"),
    ("ps", "list"),
    ("describe", "explain"),
    ("inspect", "explain"),
    ("trace", "explain"),
    ("delete", "del"),
    ("rm", "del"),
    ("logs", "log"),
    ("lint", "validate"),
    ("prune", "gc"),
    ("fix", "repair"),
];

/// The fault of a command line, and the lines below it.
type Explained = (String, Vec<String>);

/// The verb that the words name, as far as they name one.
struct Verb {
    /// With the program's name: `cnitool ipam list`.
    name: String,
    command: Command,
    /// All verbs, for options that another one has.
    all: Vec<Command>,
}

impl Verb {
    fn find(grammar: &mut Command, words: &[OsString]) -> Self {
        grammar.build();
        let all: Vec<Command> = visible(grammar).cloned().collect();
        let (mut command, mut name) = (grammar.clone(), "cnitool".to_owned());
        let mut words = words.iter().skip(1).filter_map(|word| word.to_str());
        while let Some(word) = words.next() {
            let option = command.get_arguments().find(|arg| is_option(arg, word));
            if option.is_some_and(|arg| arg.get_action().takes_values()) {
                words.next();
            } else if let Some(below) = command.find_subcommand(word).filter(|_| !word.starts_with('-')) {
                name = format!("{name} {word}");
                command = below.clone();
            }
        }
        Self { name, command, all }
    }

    fn help(&self) -> String {
        format!("{} --help shows what it takes.", self.name)
    }

    fn usage(&self) -> String {
        self.command.clone().render_usage().to_string().trim().to_owned()
    }

    fn verbs(&self) -> Vec<&str> {
        visible(&self.command).map(Command::get_name).collect()
    }

    fn is_unknown(&self, word: &str) -> Explained {
        let verbs = self.verbs();
        let mut beginning = verbs.iter().filter(|verb| verb.starts_with(word)).copied();
        let of_others = OF_OTHERS.iter().find(|(other, _)| *other == word).map(|(_, meant)| *meant);
        let meant = of_others.filter(|meant| verbs.contains(meant)).or_else(|| resembling(word, verbs.iter().copied()));
        let meant = meant.or_else(|| beginning.next().filter(|_| beginning.next().is_none()));
        let mut below: Vec<String> = meant.map(|meant| format!("Did you mean {meant}?")).into_iter().collect();
        below.push(format!("{} --help lists the verbs.", self.name));
        (format!("{} has no verb {word}", self.name), below)
    }

    fn lacks_a_verb(&self) -> Explained {
        let below = vec![
            format!("Verbs are {}.", self.verbs().join(", ")),
            format!("{} --help says what each does.", self.name),
        ];
        (format!("{} needs a verb", self.name), below)
    }

    fn has_no(&self, word: &str) -> Explained {
        let word = word.split('=').next().unwrap_or(word);
        if !word.starts_with('-') {
            return (format!("{} does not take the word {word}", self.name), vec![self.usage(), self.help()]);
        }
        let others = self.all.iter().filter(|verb| options(verb).any(|option| option == word));
        let others: Vec<&str> = others.map(Command::get_name).collect();
        let known: Vec<String> = options(&self.command).collect();
        let below = match resembling(word, known.iter().map(String::as_str)) {
            _ if !others.is_empty() => Some(format!("It is an option of {}.", others.join(", "))),
            meant => meant.map(|meant| format!("Did you mean {meant}?")),
        };
        (format!("{} has no option {word}", self.name), below.into_iter().chain([self.help()]).collect())
    }

    fn lacks(&self, missing: &[String]) -> Explained {
        let about = |name: &String| {
            let word = name.trim_matches(['<', '>', '[', ']']);
            let is_it = |arg: &&clap::Arg| {
                arg.get_value_names().is_some_and(|names| names.iter().any(|one| one.as_str() == word))
            };
            let help =
                self.command.get_positionals().find(is_it).and_then(|arg| arg.get_help().map(ToString::to_string));
            help.map(|help| format!("{name}: {}", help.split(" [default").next().unwrap_or_default()))
        };
        let below = missing.iter().filter_map(about).chain([self.usage(), self.help()]);
        (format!("{} needs {}", self.name, missing.join(" and ")), below.collect())
    }

    /// Words are paths or text; text is UTF-8.
    fn has_bytes(&self, words: &[OsString]) -> Explained {
        let word = words.iter().find(|word| word.to_str().is_none());
        let word = word.map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        (format!("{} cannot use the word {word}: it is not UTF-8", self.name), vec![self.help()])
    }

    fn has_other_values(&self, error: &clap::Error) -> Option<Explained> {
        let (option, value) = (option_name(error)?, text(error, ContextKind::InvalidValue).unwrap_or_default());
        if value.is_empty() {
            return Some((format!("{option} needs a value"), vec![self.help()]));
        }
        let values = list(error, ContextKind::ValidValue).unwrap_or_default();
        let meant = resembling(&value, values.iter().map(String::as_str));
        let mut below: Vec<String> = meant.map(|meant| format!("Did you mean {meant}?")).into_iter().collect();
        below.push(format!("It is one of {}.", values.join(", ")));
        Some((format!("{option} cannot be {value}"), below))
    }

    fn cannot_read(&self, error: &clap::Error) -> Option<Explained> {
        let (option, value) = (option_name(error)?, text(error, ContextKind::InvalidValue)?);
        let reason = std::error::Error::source(error)?.to_string();
        Some((format!("{option} cannot be {value}: {reason}"), vec![self.help()]))
    }

    fn has_either(&self, error: &clap::Error) -> Option<Explained> {
        let (option, others) = (option_name(error)?, list(error, ContextKind::PriorArg)?);
        let other = others.first().map(|other| first_word(other))?;
        let msg = match other == option {
            true => format!("{option} is given twice"),
            false => format!("{option} and {other} exclude each other"),
        };
        Some((msg, vec![self.help()]))
    }
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

fn is_option(arg: &clap::Arg, word: &str) -> bool {
    let long = word.strip_prefix("--").is_some_and(|long| arg.get_long() == Some(long));
    long || word.strip_prefix('-').is_some_and(|short| short.chars().eq(arg.get_short()))
}

fn options(command: &Command) -> impl Iterator<Item = String> {
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    shown.filter_map(|arg| arg.get_long().map(|long| format!("--{long}")))
}

/// The option or word that an error is about, without its value.
fn option_name(error: &clap::Error) -> Option<String> {
    text(error, ContextKind::InvalidArg).map(|arg| first_word(&arg))
}

fn first_word(text: &str) -> String {
    text.split([' ', '=']).next().unwrap_or_default().to_owned()
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    list(error, kind)?.into_iter().next()
}

fn list(error: &clap::Error, kind: ContextKind) -> Option<Vec<String>> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(vec![text.clone()]),
        ContextValue::Strings(texts) => Some(texts.clone()),
        _ => None,
    }
}
