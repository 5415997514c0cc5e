//! `cnitool show --watch`: the tree, again after each change.
//!
//! The kernel reports changes of links and of folders, so nothing is polled. Ages are those of the last change.

use super::{has_colour, seen};
use crate::args::Show;
use crate::gc;
use crate::output::{Output, say};
use crate::settings::Settings;
use anyhow::Context;
use cni_view::{Node, folders, json, tree};
use libcni::Cancellation;
use netops::watch::Watch;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

/// From one tree to the next: an ADD makes some dozen changes.
const PAUSE: Duration = Duration::from_millis(200);
/// The cursor to the upper left corner, and all below it removed. What the terminal has scrolled away stays.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";
/// What changes in a folder whose files are read.
const EVENTS: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_CLOSE_WRITE)
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVE)
    .union(AddWatchFlags::IN_DELETE_SELF)
    .union(AddWatchFlags::IN_ONLYDIR);

pub(crate) async fn run(
    settings: &Settings,
    words: &Show,
    output: Output,
    cancellation: &Cancellation,
) -> anyhow::Result<()> {
    let mut changes = Changes::new()?;
    let mut last = String::new();
    loop {
        // Before the look, so that no change after it is missed.
        changes.place(settings);
        let view = seen(settings, words)?;
        let text = match output.is_json {
            true => format!("{}\n", json::value(&view)),
            false => tree::text(&tree::tree(&view)),
        };
        let is_again = !last.is_empty();
        if text != last {
            show(&text, is_again, output)?;
            last = text;
        }
        tokio::select! {
            () = cancellation.cancelled() => return Ok(()),
            changed = changes.next() => changed?,
        }
        if timeout(PAUSE, cancellation.cancelled()).await.is_ok() {
            return Ok(());
        }
        changes.pass_over();
    }
}

/// On a terminal in place of the last one; in a pipe below it, after an empty line.
fn show(text: &str, is_again: bool, output: Output) -> anyhow::Result<()> {
    if output.is_json {
        return say(text.as_bytes());
    }
    let text = if has_colour() { text.to_owned() } else { anstream::adapter::strip_str(text).to_string() };
    let before = match (io::stdout().is_terminal(), is_again) {
        (true, _) => CLEAR,
        (false, true) => "\n",
        (false, false) => "",
    };
    say(format!("{before}{text}").as_bytes())
}

/// Changes of links and of folders.
struct Changes {
    links: Watch,
    folders: Inotify,
    /// For waiting; it is the same queue.
    readable: AsyncFd<OwnedFd>,
}

impl Changes {
    fn new() -> anyhow::Result<Self> {
        let folders = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).context("cannot watch folders")?;
        let queue = folders.as_fd().try_clone_to_owned().context("cannot watch folders")?;
        let readable = watched(queue).context("cannot watch folders")?;
        Ok(Self { links: Watch::host()?, folders, readable })
    }

    /// Watches what the next view depends on. A folder that is watched already, or has vanished, changes nothing.
    fn place(&self, settings: &Settings) {
        let (runtime, conf_dir) = (&settings.runtime, settings.conf_dir.as_path());
        for folder in folders(Node { runtime, conf_dir, inventory: &gc::node() }) {
            let watched = self.folders.add_watch(&folder, EVENTS);
            if let Err(errno @ (Errno::ENOSPC | Errno::ENOMEM | Errno::EACCES)) = watched {
                tracing::warn!("cannot watch {}: {errno}", folder.display());
            }
        }
    }

    async fn next(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            changed = self.links.changed() => Ok(changed?),
            ready = self.readable.readable() => {
                ready.context("cannot watch folders")?.clear_ready();
                Ok(())
            }
        }
    }

    /// Passes over the changes that the next look sees.
    fn pass_over(&mut self) {
        self.links.pass_over();
        while self.folders.read_events().is_ok_and(|events| !events.is_empty()) {}
    }
}

#[expect(deprecated, reason = "its replacement is unsafe; the descriptor is owned, so it is open all the time")]
fn watched(queue: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(queue, Interest::READABLE)
}
