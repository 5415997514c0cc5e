//! `cnitool show --watch`: the tree, again after each change.
//!
//! The kernel reports changes of links and of folders, so nothing is polled. Ages are those of the last change.

use super::{json, seen, shown, tree};
use crate::args::Show;
use crate::error_remedies::is_told_to_be_root;
use crate::folder_changes::{Folders, watched};
use crate::node_networks::folders;
use crate::output::{Output, columns, has_colour, say};
use crate::settings::Settings;
use crate::tree_text::text_within;
use libcni::Cancellation;
use netops::watch::Watch;
use nix::errno::Errno;
use nix::sys::inotify::AddWatchFlags;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::io::Interest;
use tokio::time::timeout;

/// The time from one tree to the next: an ADD makes some dozen changes.
const PAUSE: Duration = Duration::from_millis(200);
/// The cursor to the upper left corner, and all below it removed (ECMA-48, CUP and ED). What the terminal has scrolled away stays.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";
/// Rows of a terminal that does not tell its size.
const ROWS: usize = 24;
/// Changes in a folder whose files are read.
const EVENTS: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_CLOSE_WRITE)
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVE)
    .union(AddWatchFlags::IN_DELETE_SELF);

pub(crate) async fn run(
    settings: &Settings,
    words: &Show,
    output: Output,
    cancellation: &Cancellation,
) -> anyhow::Result<()> {
    let mut changes = Changes::new()?;
    let (mut screen, mut last) = (Screen::default(), String::new());
    loop {
        // Before the look, so that no change after it is missed.
        changes.place(settings);
        let view = seen(settings, words)?;
        let text = match output.is_json {
            true => format!("{}\n", json::value(&view)),
            false => text_within(columns(), &tree::tree(&view, shown(words))),
        };
        if text != last {
            show(&text, !last.is_empty(), &mut screen, output)?;
            last = text;
        }
        tokio::select! {
            () = cancellation.cancelled() => return Ok(()),
            () = closed() => return Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
            changed = changes.next() => changed?,
        }
        if timeout(PAUSE, cancellation.cancelled()).await.is_ok() {
            return Ok(());
        }
        changes.pass_over();
    }
}

/// Waits until nothing reads the pipe any more that stdout is: the next change may be hours away.
async fn closed() {
    if let Ok(stdout) = io::stdout().as_fd().try_clone_to_owned().and_then(|fd| watched(fd, Interest::ERROR))
        && stdout.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Writes a tree on a terminal in place of the last one; in a pipe below it, after an empty line.
fn show(text: &str, is_again: bool, screen: &mut Screen, output: Output) -> anyhow::Result<()> {
    if output.is_json {
        return say(text.as_bytes());
    }
    let text = if has_colour() { text.to_owned() } else { anstream::adapter::strip_str(text).to_string() };
    if io::stdout().is_terminal() {
        let rows = rustix::termios::tcgetwinsize(io::stdout()).map_or(ROWS, |size| usize::from(size.ws_row));
        return say(screen.draw(&text, rows.max(2)).as_bytes());
    }
    say(format!("{}{text}", if is_again { "\n" } else { "" }).as_bytes())
}

/// What a terminal shows.
#[derive(Default)]
struct Screen {
    rows: usize,
    lines: Vec<String>,
}

impl Screen {
    /// The text to write so that the terminal shows these lines, as far as they have room: only lines that are not there yet.
    fn draw(&mut self, text: &str, rows: usize) -> String {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        // The last row stays free for the cursor.
        let room = rows - 1;
        if lines.len() > room {
            let rest = lines.len() - (room - 1);
            lines.truncate(room - 1);
            lines.push(format!("({rest} more lines: --brief and --state show fewer)"));
        }
        let mut drawn = String::new();
        if self.rows != rows {
            drawn.push_str(CLEAR);
            self.lines.clear();
        }
        for (row, line) in lines.iter().enumerate().filter(|(row, line)| self.lines.get(*row) != Some(line)) {
            drawn.push_str(&format!("\u{1b}[{};1H\u{1b}[K{line}", row + 1));
        }
        // The cursor below the last line, and nothing after it.
        drawn.push_str(&format!("\u{1b}[{};1H\u{1b}[J", lines.len() + 1));
        (self.rows, self.lines) = (rows, lines);
        drawn
    }
}

/// Changes of links and of folders.
struct Changes {
    links: Watch,
    folders: Folders,
}

impl Changes {
    fn new() -> anyhow::Result<Self> {
        Ok(Self { links: Watch::host()?, folders: Folders::new()? })
    }

    /// Watches what the next view depends on. A folder that is watched already, or has vanished, changes nothing.
    fn place(&self, settings: &Settings) {
        for folder in folders(settings.node()) {
            let watched = self.folders.add(&folder, EVENTS);
            if let Err(errno @ (Errno::ENOSPC | Errno::ENOMEM | Errno::EACCES)) = watched
                && !is_told_to_be_root()
            {
                tracing::warn!("cannot watch {}: {errno}", folder.display());
            }
        }
    }

    async fn next(&mut self) -> anyhow::Result<()> {
        tokio::select! {
            changed = self.links.changed() => Ok(changed?),
            changed = self.folders.changed() => changed,
        }
    }

    /// Drops the announcements of changes that the next reading sees.
    fn pass_over(&mut self) {
        self.links.pass_over();
        self.folders.pass_over();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_changed_are_drawn_again() {
        let mut screen = Screen::default();
        let first = screen.draw("node\nweb lives\nshop lives\n", 24);
        assert!(first.starts_with(CLEAR) && first.contains("shop lives"), "{first:?}");
        assert_eq!(screen.draw("node\nweb gone\nshop lives\n", 24), "\u{1b}[2;1H\u{1b}[Kweb gone\u{1b}[4;1H\u{1b}[J");
        assert_eq!(screen.draw("node\n", 24), "\u{1b}[2;1H\u{1b}[J");
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let text: String = (0..200).map(|number| format!("pod-{number}\n")).collect();
        let drawn = Screen::default().draw(&text, 10);
        assert!(drawn.contains("pod-7") && !drawn.contains("pod-8\u{1b}"), "{drawn:?}");
        assert!(drawn.contains("(192 more lines: --brief and --state show fewer)"), "{drawn:?}");
    }
}
