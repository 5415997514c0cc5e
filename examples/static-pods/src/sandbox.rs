//! A pod's sandbox: a network namespace that a mount holds, so it outlives this program and needs no process.

use anyhow::{Context, Result};
use netops::{Netns, netns};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs::File;
use std::path::Path;

/// An ID as container runtimes make them: 32 random bytes in hex.
pub(crate) fn new_id() -> Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).context("cannot get random bytes")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(crate) fn create(path: &Path) -> Result<()> {
    let shown = path.display();
    File::create_new(path).with_context(|| format!("cannot create {shown}"))?;
    let none = None::<&str>;
    Netns::run_in_new(|| mount(Some(netns::own_file()), path, none, MsFlags::MS_BIND, none))?
        .with_context(|| format!("cannot mount a network namespace at {shown}"))
}

/// Removes a network namespace, or what a program that was killed has left of one.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match umount2(path, MntFlags::MNT_DETACH) {
        // EINVAL: nothing is mounted.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => Ok(netops::file::remove(path)?),
        Err(errno) => Err(errno).with_context(|| format!("cannot unmount {}", path.display())),
    }
}
