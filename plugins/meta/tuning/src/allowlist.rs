//! The administrator's list of sysctls that networks may set. Without the file they may set any below net.

use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use cni_spec::{CniError, Code};
use regex_lite::Regex;

use crate::conf::Sysctls;

/// The reference's file: a regular expression a line, that a key has to match anywhere.
pub const PATH: &str = "/etc/cni/tuning/allowlist.conf";

/// The longest list that is read, in bytes. All sysctls below net are some 100 KB.
const BYTES_MAX: u64 = 1 << 20;

const O_NOCTTY: i32 = 0o400; // include/uapi/asm-generic/fcntl.h
const O_NONBLOCK: i32 = 0o4_000;

/// Refuses sysctls that the list does not allow.
pub fn require(sysctls: &Sysctls) -> Result<(), CniError> {
    if sysctls.0.is_empty() {
        return Ok(());
    }
    match read(Path::new(PATH)) {
        // A line that is no text matches no name of a sysctl. It is no reason to refuse those that the other lines allow.
        Ok(bytes) => require_in(&String::from_utf8_lossy(&bytes), sysctls),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(CniError::new(Code::IO, format!("cannot read {PATH}: {error}"))),
    }
}

/// Reads a regular file, or a link to one: a pipe must not block until a writer comes, and a device may have no end.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = std::fs::OpenOptions::new().read(true).custom_flags(O_NONBLOCK | O_NOCTTY).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    match file.take(BYTES_MAX + 1).read_to_end(&mut bytes)? as u64 > BYTES_MAX {
        true => Err(io::Error::other("it is larger than 1 MiB")),
        false => Ok(bytes),
    }
}

fn require_in(text: &str, sysctls: &Sysctls) -> Result<(), CniError> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let compiled: Result<Vec<Regex>, CniError> = lines.map(compile).collect();
    let allowed = compiled?;
    match sysctls.0.iter().find(|(name, _)| !allowed.iter().any(|line| line.is_match(name))) {
        None => Ok(()),
        Some((name, _)) => {
            let msg = format!("cannot use network config: key sysctl.{name:?}: {PATH} does not allow it");
            let lines: Vec<&str> = allowed.iter().map(Regex::as_str).collect();
            Err(CniError::new(Code::INVALID_CONFIG, msg).detail(format!("It allows: {}.", lines.join(", "))))
        }
    }
}

fn compile(line: &str) -> Result<Regex, CniError> {
    Regex::new(line).map_err(|error| {
        CniError::new(Code::IO, format!("cannot use {PATH}: line {line:?} is no regular expression: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sysctl_matches_one_of_the_lines() {
        let of = |names: &[&str]| Sysctls(names.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect());
        let list = "^net\\.ipv4\\.conf\\.IFNAME\\.[a-z_]*$\n\n  somaxconn\n";
        require_in(list, &of(&["net.ipv4.conf.IFNAME.arp_notify", "net/core/somaxconn"])).unwrap();
        let error = require_in(list, &of(&["net/core/somaxconn", "net.ipv4.ip_forward"])).unwrap_err();
        assert!(error.msg.contains(r#"sysctl."net.ipv4.ip_forward""#), "{error}");
        assert!(require_in("", &of(&["net.core.somaxconn"])).is_err());
        let error = require_in("a(", &of(&["net.core.somaxconn"])).unwrap_err();
        assert!(error.msg.contains(r#"line "a(""#), "{error}");
    }

    #[test]
    fn only_a_regular_file_of_a_sane_size_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        std::fs::File::create(path("large")).unwrap().set_len(BYTES_MAX + 1).unwrap();
        std::os::unix::fs::symlink("/dev/zero", path("zero")).unwrap();
        for (path, why) in [
            (path("fifo"), "it is no regular file"),
            (path("zero"), "it is no regular file"),
            (folder.path().into(), "it is no regular file"),
            (path("large"), "it is larger than 1 MiB"),
        ] {
            assert_eq!(read(&path).unwrap_err().to_string(), why);
        }
        assert_eq!(read(&path("none")).unwrap_err().kind(), ErrorKind::NotFound);
        std::fs::write(path("list"), "^net").unwrap();
        std::os::unix::fs::symlink("list", path("link")).unwrap();
        assert_eq!(read(&path("link")).unwrap(), b"^net");
    }
}
