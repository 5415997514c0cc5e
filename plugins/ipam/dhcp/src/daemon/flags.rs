//! The daemon's flags, with the names and forms of the reference's: `-name value`, `--name=value`.

use std::path::PathBuf;
use std::time::Duration;

use crate::client::Timing;
use crate::conf::SOCKET;

/// What `dhcp daemon` was started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flags {
    pub pid_file: Option<PathBuf>,
    /// Where the node's file system is; empty if the daemon runs on it.
    pub host_prefix: String,
    pub socket: PathBuf,
    /// Servers have to broadcast their answers.
    pub broadcast: bool,
    /// How often messages are sent again.
    pub timing: Timing,
    /// How long ADD may take.
    pub resend_timeout: Duration,
}

/// The text for `-help`, and after a flag that is none.
pub const USAGE: &str = "\
usage: dhcp daemon [FLAG]...
  -pidfile PATH         absolute path of a file for the pid
  -hostprefix PATH      where the node's file system is mounted
  -socketpath PATH      the socket (/run/cni/dhcp.sock)
  -broadcast            ask servers to broadcast their answers
  -timeout 10s          how long a server may take to acknowledge
  -resendmax 62s        longest pause between two messages
  -resendtimeout 208s   how long an ADD may take
";

impl Flags {
    /// Parses the words after `daemon`.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut flags = Self {
            pid_file: None,
            host_prefix: String::new(),
            socket: SOCKET.into(),
            broadcast: false,
            timing: Timing::default(),
            resend_timeout: Duration::from_secs(208),
        };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'));
            let name = name.ok_or_else(|| format!("{word:?} is no flag"))?;
            let (name, given) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (name, None),
            };
            if name == "broadcast" {
                flags.broadcast = match given.as_deref() {
                    None | Some("true" | "1" | "t") => true,
                    Some("false" | "0" | "f") => false,
                    Some(other) => return Err(format!("-broadcast={other}: it is neither true nor false")),
                };
                continue;
            }
            let mut value = || given.clone().or_else(|| words.next()).ok_or_else(|| format!("-{name} needs a value"));
            match name {
                "pidfile" => flags.pid_file = Some(absolute(name, value()?)?),
                "hostprefix" => flags.host_prefix = value()?,
                "socketpath" => flags.socket = value()?.into(),
                "timeout" => flags.timing.timeout = duration(name, &value()?)?,
                "resendmax" => flags.timing.resend_max = duration(name, &value()?)?,
                "resendtimeout" => flags.resend_timeout = duration(name, &value()?)?,
                _ => return Err(format!("-{name} is no flag of the daemon")),
            }
        }
        Ok(flags)
    }

    /// A path of the node, as the daemon finds it.
    pub fn on_host(&self, path: &str) -> PathBuf {
        format!("{}{path}", self.host_prefix).into()
    }
}

fn absolute(name: &str, path: String) -> Result<PathBuf, String> {
    if path.starts_with('/') { Ok(path.into()) } else { Err(format!("-{name} {path}: it is no absolute path")) }
}

/// A duration as Go writes it: `1h2m3.5s`, `500ms`.
fn duration(name: &str, text: &str) -> Result<Duration, String> {
    let bad = || format!("-{name} {text}: want a duration above zero, such as 10s");
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let (number, tail) = rest.split_at(end);
        let units = [("ms", 0.001), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];
        let (unit, seconds) = units.into_iter().find(|(unit, _)| tail.starts_with(unit)).ok_or_else(bad)?;
        let number: f64 = number.parse().ok().ok_or_else(bad)?;
        sum += Duration::try_from_secs_f64(number * seconds).ok().ok_or_else(bad)?;
        rest = &tail[unit.len()..];
    }
    if sum.is_zero() { Err(bad()) } else { Ok(sum) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Flags, String> {
        Flags::parse(words.iter().map(|&word| word.to_owned()))
    }

    #[test]
    fn flags_are_written_as_go_reads_them() {
        let flags =
            parse(&["-socketpath", "/run/x.sock", "--timeout=1m30s", "-broadcast", "-resendmax=500ms"]).unwrap();
        assert_eq!(flags.socket, PathBuf::from("/run/x.sock"));
        assert_eq!((flags.timing.timeout.as_secs(), flags.timing.resend_max.as_millis()), (90, 500));
        assert!(flags.broadcast && !parse(&["-broadcast=false"]).unwrap().broadcast);
    }

    #[test]
    fn what_is_no_flag_is_named() {
        for (words, named) in [
            (&["daemon"][..], "\"daemon\""),
            (&["-nope"], "-nope"),
            (&["-timeout"], "-timeout needs"),
            (&["-timeout", "10"], "-timeout 10"),
            (&["-timeout", "0s"], "above zero"),
            (&["-resendmax", "-1s"], "above zero"),
            (&["-pidfile", "x"], "absolute"),
        ] {
            assert!(parse(words).unwrap_err().contains(named), "{words:?}");
        }
    }
}
