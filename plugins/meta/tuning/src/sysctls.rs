//! Sysctls of the container: all are written, or none; and compared.

use chained::{LazySides, Left, Txn, Undo, all, differs, failed};
use cni_spec::CniError;
use netops::sysctl::{self, Key};
use netops::{Netns, OpError};

pub fn write(netns: &Netns, wanted: &[(Key, String)], txn: &Txn) -> Result<(), CniError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let (changed, refused) = netns.run(|| swap_all(wanted)).map_err(failed)?;
    for (key, old) in changed {
        txn.push(Box::new(Restore { key, old }));
    }
    refused.map_or(Ok(()), |error| Err(explained(error, netns)))
}

/// Looks for sysctls in a container's namespace.
pub fn find_all<'a>(netns: &Netns, wanted: impl Iterator<Item = &'a Key> + Send) -> Result<(), CniError> {
    let absent = |key: &'a Key| sysctl::read_strictly(key).err().filter(OpError::is_absent);
    let first = netns.run(|| { wanted }.find_map(absent)).map_err(failed)?;
    first.map_or(Ok(()), |error| Err(explained(error, netns)))
}

fn explained(error: OpError, netns: &Netns) -> CniError {
    let is_absent = error.is_absent();
    let error = failed(error.at(netns.path().display().to_string()));
    if is_absent { error.detail("The kernel has no such sysctl in a container's namespace.") } else { error }
}

/// The old values of what was changed, in order, and the first refusal.
fn swap_all(wanted: &[(Key, String)]) -> (Vec<(Key, String)>, Option<OpError>) {
    let mut changed = Vec::new();
    // What some writes do is not undone by the old value: `disable_ipv6` takes the addresses. A missing one shows before them.
    let look = |(key, value): &(Key, String)| sysctl::look_before_swap(key, value);
    if let Err(error) = wanted.iter().filter(|_| wanted.len() > 1).try_for_each(look) {
        return (changed, Some(error));
    }
    for (key, value) in wanted {
        match sysctl::swap(key, value) {
            Ok(old) => changed.extend(old.filter(|old| old != value).map(|old| (key.clone(), old))),
            Err(error) => return (changed, Some(error)),
        }
    }
    (changed, None)
}

/// Compares the values. The kernel shows tabs where a list may have been written with blanks. An empty value changes nothing, as
/// in the reference, so it differs from none.
pub fn compare(netns: &Netns, wanted: &[(Key, String)]) -> Result<(), CniError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let look = || wanted.iter().map(|(key, _)| sysctl::read_strictly(key)).collect();
    let found: Vec<netops::error::Result<Option<String>>> = netns.run(look).map_err(failed)?;
    all(wanted.iter().zip(found).map(|((key, wanted), found)| {
        // A setting that can only be written to shows nothing.
        let Some(found) = found.map_err(|error| failed(error.at(netns.path().display().to_string())))? else {
            return Ok(());
        };
        match wanted.is_empty() || found.split_whitespace().eq(wanted.split_whitespace()) {
            true => Ok(()),
            false => Err(differs(key, format!("its value is {found}, not {wanted}"))),
        }
    }))
}

#[derive(Debug)]
struct Restore {
    key: Key,
    old: String,
}

impl Undo for Restore {
    fn text(&self) -> String {
        format!("{} = {}", self.key, self.old)
    }

    fn run(&self, sides: &LazySides<'_>) -> Result<(), Left> {
        let sides = sides.open()?;
        sides.netns.run(|| sysctl::swap(&self.key, &self.old))??;
        Ok(())
    }
}
