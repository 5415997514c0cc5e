//! Reading a log of calls: from its beginning, or on from a place, or from its end.
//!
//! A log may have gigabytes, so each way yields now and then: a signal, or another client of `metrics --listen`, does not
//! wait for the end of the file.

use crate::error_remedies::Remedy;
use crate::folder_changes::Folders;
use crate::shell_words::word;
use anyhow::{Context, bail};
use call_log::{DEFAULT_FILE, NODE_FILE, Record, Sink};
use libcni::cni_spec::exec::Child;
use nix::sys::inotify::AddWatchFlags;
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt};
use tokio::net::unix::pipe::Receiver;
use tokio::task::yield_now;
use tokio::time::timeout;

/// A longer line is no record.
const LINE_BYTES_MAX: usize = 64 << 10;
/// The size of one read from the end.
const BLOCK_BYTES: usize = 64 << 10;
/// How long the journal's program may take for its next line.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(30);

/// A place in a log: what is before it has been read.
#[derive(Debug, Default)]
pub(crate) struct LogPosition {
    /// Device and inode of the file, and the offset in it.
    file: Option<(u64, u64, u64)>,
    /// The last line of the journal, which has its cursor.
    line: Vec<u8>,
}

impl LogPosition {
    /// Reads on from here to the end of the log as it is now, the oldest record first. Lines that are no records are passed
    /// over. If the log is another one than before, such as after a rotation, it is read from its beginning, after
    /// `begin`. May be dropped at any await: the place is then that of the next line.
    pub(crate) async fn read_on(&mut self, log: &Sink, counts: &mut impl Counts) -> anyhow::Result<()> {
        match log {
            Sink::Journal => self.read_journal(counts).await,
            Sink::File(path) => {
                self.read_file(path, counts).await.with_context(|| format!("cannot read log {}", path.display()))
            }
            Sink::Off | Sink::Stderr => Err(unreadable()),
        }
    }

    pub(crate) fn at_end(log: &Sink) -> Self {
        let Sink::File(path) = log else { return Self::default() };
        let end = libcni::plain_file::open(path).and_then(|file| file.metadata());
        Self { file: end.ok().map(|meta| (meta.dev(), meta.ino(), meta.len())), line: Vec::new() }
    }

    async fn read_file(&mut self, path: &Path, counts: &mut impl Counts) -> io::Result<()> {
        // No pipe or device, and only what is there now: other calls go on writing.
        let mut file = libcni::plain_file::open(path)?;
        let meta = file.metadata()?;
        let known =
            self.file.filter(|(dev, inode, at)| (*dev, *inode) == (meta.dev(), meta.ino()) && *at <= meta.len());
        if known.is_none() {
            counts.begin();
        }
        let at = &mut self.file.insert(known.unwrap_or((meta.dev(), meta.ino(), 0))).2;
        file.seek(SeekFrom::Start(*at))?;
        let mut lines = BufReader::with_capacity(BLOCK_BYTES, file.take(meta.len() - *at));
        let mut line = Vec::new();
        loop {
            if lines.buffer().is_empty() {
                yield_now().await;
            }
            line.clear();
            let count = lines.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
            // A line without an end may be one that is being written.
            if count == 0 || count < LINE_BYTES_MAX && line.last() != Some(&b'\n') {
                return Ok(());
            }
            *at += count as u64;
            record(&line).into_iter().for_each(|record| counts.add(record));
        }
    }

    async fn read_journal(&mut self, counts: &mut impl Counts) -> anyhow::Result<()> {
        let cursor = self.cursor().map(|cursor| format!("--after-cursor={cursor}"));
        if cursor.is_none() {
            counts.begin();
        }
        let mut journal = Journal::start(cursor.as_deref().as_slice())?;
        let mut line = Vec::new();
        while journal.next(&mut line).await? {
            record(&line).into_iter().for_each(|record| counts.add(record));
            std::mem::swap(&mut self.line, &mut line);
        }
        journal.end().await
    }

    fn cursor(&self) -> Option<String> {
        let line: Value = serde_json::from_slice(&self.line).ok()?;
        Some(line.get("__CURSOR")?.as_str()?.to_owned())
    }
}

/// Goes on from a place, until the caller's end, with each record that is written. A log that is another one then is read from its
/// beginning.
pub(crate) async fn follow(log: &Sink, mut from: LogPosition, counts: &mut impl Counts) -> anyhow::Result<()> {
    let Sink::File(path) = log else {
        let mut journal = Journal::start(&["--follow", "--lines=0"])?;
        let mut line = Vec::new();
        loop {
            // Nothing is written for hours, perhaps.
            line.clear();
            if (&mut journal.lines).take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line).await? == 0 {
                return journal.end().await;
            }
            record(&line).into_iter().for_each(|record| counts.add(record));
            if counts.is_done() {
                return Ok(());
            }
        }
    };
    let mut changes = Folders::new()?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let is_written = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
    changes.add(folder, is_written).with_context(|| format!("cannot watch {}", folder.display()))?;
    loop {
        match from.read_file(path, counts).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            read => read.with_context(|| format!("cannot read log {}", path.display()))?,
        }
        if counts.is_done() {
            return Ok(());
        }
        changes.changed().await?;
        changes.pass_over();
    }
}

/// Receives records.
pub(crate) trait Counts {
    /// Starts anew: the records received before are of another log.
    fn begin(&mut self);
    fn add(&mut self, record: Record);
    /// Whether no further record is wanted.
    fn is_done(&self) -> bool {
        false
    }
}

/// The records that are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Filter<'a> {
    pub(crate) container: Option<&'a str>,
    pub(crate) network: Option<&'a str>,
    pub(crate) verb: Option<&'a str>,
    /// Calls that ended before this are not wanted.
    pub(crate) since_us: u64,
    pub(crate) errors: bool,
}

impl Filter<'_> {
    pub(crate) fn takes(&self, record: &Record) -> bool {
        self.container.is_none_or(|container| record.container == container)
            && self.network.is_none_or(|network| record.network == network)
            && self.verb.is_none_or(|verb| record.verb.eq_ignore_ascii_case(verb))
            && (!self.errors || record.has_failed())
            && !self.is_past(record)
    }

    /// Whether the call ended before all that are wanted. Records are written in the order in which calls end.
    pub(crate) fn is_past(&self, record: &Record) -> bool {
        record.begin_us.saturating_add(record.duration_us) < self.since_us
    }

    /// Whether a line may be of a wanted record: as text, which takes a hundredth of the time of reading it.
    fn may_take(&self, line: &[u8]) -> bool {
        let has = |text: &str| memchr::memmem::find(line, text.as_bytes()).is_some();
        // Other texts may have escapes in JSON.
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
        [self.container, self.network].into_iter().flatten().all(|name| !is_plain(name) || has(name))
            && (!self.errors || has("CNI_ERROR_CODE"))
    }

    /// The same as the journal's matches, which it has an index of.
    fn matches(&self) -> Vec<String> {
        let fields = [("CNI_CONTAINERID", self.container), ("CNI_NETWORK", self.network), ("CNI_VERB", self.verb)];
        let given = fields.into_iter().filter_map(|(field, value)| Some(format!("{field}={}", value?)));
        given.chain(self.errors.then(|| "CNI_RESULT=error".to_owned())).collect()
    }
}

/// Reads a log from its end, the newest record first, until `each` breaks. `each` returns what it wants next. Returns how many
/// lines were no records, of those that may be of a record that the filter takes.
pub(crate) async fn read_back(
    log: &Sink,
    filter: &Filter<'_>,
    mut each: impl FnMut(Record) -> ControlFlow<(), Want>,
) -> anyhow::Result<u64> {
    match log {
        Sink::Journal => {
            let mut words = vec!["--reverse".to_owned()];
            words.extend(filter.matches());
            let mut journal = Journal::start(&words)?;
            let mut line = Vec::new();
            while journal.next(&mut line).await? {
                if record(&line).is_some_and(|record| each(record).is_break()) {
                    return Ok(0);
                }
            }
            journal.end().await.map(|()| 0)
        }
        Sink::File(path) => {
            let read = file_back(path, filter, each).await;
            read.with_context(|| format!("cannot read log {}", path.display())).if_absent(|| {
                let first = match path.parent().filter(|folder| !folder.is_dir()) {
                    Some(folder) => format!(
                        "No call is logged without its folder: install -d -m 700 {}.",
                        word(&folder.display().to_string())
                    ),
                    None => "The first call that is logged makes it.".to_owned(),
                };
                format!("{first} {NODE_FILE} names the log of this node.")
            })
        }
        Sink::Off | Sink::Stderr => Err(unreadable()),
    }
}

/// What the receiver of records wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Any record, for the time at which it was written.
    Any,
    /// Records that the filter takes.
    Taken,
}

async fn file_back(
    path: &Path,
    filter: &Filter<'_>,
    mut each: impl FnMut(Record) -> ControlFlow<(), Want>,
) -> io::Result<u64> {
    let mut others = 0;
    let mut lines = LinesBack::of(libcni::plain_file::open(path)?)?;
    let mut want = Want::Taken;
    while let Some(line) = lines.next().await? {
        if want == Want::Taken && !filter.may_take(line) {
            continue;
        }
        match record(line).map(&mut each) {
            Some(ControlFlow::Break(())) => return Ok(others),
            Some(ControlFlow::Continue(next)) => want = next,
            None => others += 1,
        }
    }
    Ok(others)
}

/// The lines of a file, the last one first.
struct LinesBack {
    file: File,
    /// The offset of `block` in the file.
    at: u64,
    /// The bytes read last, up to the end of a line, or of the file.
    block: Vec<u8>,
    /// The length of the part of `block` that was not returned yet.
    left: usize,
    /// The end of `block` was left out, as its line is too long.
    is_cut: bool,
}

impl LinesBack {
    fn of(file: File) -> io::Result<Self> {
        let at = file.metadata()?.len();
        Ok(Self { file, at, block: Vec::new(), left: 0, is_cut: false })
    }

    async fn next(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            let end = self.left;
            let text = &self.block[..end];
            // The line that was left out begins where the block ends.
            self.is_cut &= !text.ends_with(b"\n");
            let body = text.strip_suffix(b"\n").unwrap_or(text);
            let begin = memchr::memrchr(b'\n', body).map(|newline| newline + 1);
            if let Some(begin) = begin.or_else(|| (self.at == 0 && end > 0).then_some(0)) {
                self.left = begin;
                if std::mem::take(&mut self.is_cut) {
                    continue;
                }
                return Ok(Some(&self.block[begin..end]));
            }
            if self.at == 0 || !self.read_before().await? {
                return Ok(None);
            }
        }
    }

    /// Puts the bytes before the block in front of what is left of it. False if the file has become shorter.
    async fn read_before(&mut self) -> io::Result<bool> {
        yield_now().await;
        self.block.truncate(self.left);
        if self.block.len() > LINE_BYTES_MAX {
            self.is_cut = true;
            self.block.clear();
        }
        let count = usize::try_from(self.at).map_or(BLOCK_BYTES, |at| at.min(BLOCK_BYTES));
        let mut before = vec![0; count];
        match self.file.read_exact_at(&mut before, self.at - count as u64) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        self.at -= count as u64;
        before.append(&mut self.block);
        self.block = before;
        self.left = self.block.len();
        Ok(true)
    }
}

/// The journal's program, which prints records of root's processes only: any user can send such fields to the journal, but
/// not choose `_UID`. Its end stops it.
struct Journal {
    child: Child,
    lines: tokio::io::BufReader<Receiver>,
}

impl Journal {
    fn start(words: &[impl AsRef<std::ffi::OsStr>]) -> anyhow::Result<Self> {
        let mut command = std::process::Command::new("journalctl");
        command.args(["--output=json", "--all", "--no-pager", "--quiet", "--boot", "SYSLOG_IDENTIFIER=cni", "_UID=0"]);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Child::spawn(&mut command).context("cannot read the journal: cannot run journalctl")?;
        let stdout = child.process.stdout.take().context("cannot read the journal")?;
        let stdout = Receiver::from_owned_fd(stdout.into()).context("cannot read the journal")?;
        Ok(Self { child, lines: tokio::io::BufReader::new(stdout) })
    }

    /// Reads the next line, or a part of a long one. False at the end.
    async fn next(&mut self, line: &mut Vec<u8>) -> anyhow::Result<bool> {
        line.clear();
        let mut bounded = (&mut self.lines).take(LINE_BYTES_MAX as u64);
        let read = timeout(JOURNAL_PATIENCE, bounded.read_until(b'\n', line)).await;
        Ok(read.context("cannot read the journal: journalctl is silent")?? > 0)
    }

    async fn end(mut self) -> anyhow::Result<()> {
        let status = timeout(JOURNAL_PATIENCE, self.child.wait()).await.context("journalctl does not end")??;
        if !status.success() {
            bail!("cannot read the journal: journalctl failed: {status}");
        }
        Ok(())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.child.process.kill().ok();
    }
}

fn record(line: &[u8]) -> Option<Record> {
    std::str::from_utf8(line).ok().and_then(Record::parse)
}

fn unreadable() -> anyhow::Error {
    anyhow::anyhow!("cannot read log: it is neither the journal nor a file such as {DEFAULT_FILE}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verbs that were received, and how often it began.
    #[derive(Default)]
    struct Seen {
        verbs: Vec<String>,
        begun: usize,
    }

    impl Counts for Seen {
        fn begin(&mut self) {
            self.verbs.clear();
            self.begun += 1;
        }

        fn add(&mut self, record: Record) {
            self.verbs.push(record.verb);
        }
    }

    fn line(verb: &str) -> String {
        let record = Record { verb: verb.to_owned(), plugin: "bridge".to_owned(), ..Record::default() };
        record.to_line()
    }

    /// A scrape costs what is new in the log. Nothing is counted twice, and a rotation starts anew.
    #[test]
    fn what_was_read_is_not_read_again_unless_the_log_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calls.log");
        let (mut place, mut seen) = (LogPosition::default(), Seen::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut verbs = || {
            runtime.block_on(place.read_on(&Sink::File(path.clone()), &mut seen)).unwrap();
            (seen.verbs.join(" "), seen.begun)
        };
        std::fs::write(&path, line("ADD") + &line("DEL")).unwrap();
        assert_eq!(verbs(), ("ADD DEL".to_owned(), 1));
        // Another content in the same place of the same file: it would be seen if it were read.
        let half = &line("GC")[..20];
        std::fs::write(&path, "#".repeat((line("ADD") + &line("DEL")).len()) + &line("CHECK") + half).unwrap();
        assert_eq!(verbs(), ("ADD DEL CHECK".to_owned(), 1));
        assert_eq!(verbs(), ("ADD DEL CHECK".to_owned(), 1));
        let before = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, before + &line("GC")[20..]).unwrap();
        assert_eq!(verbs(), ("ADD DEL CHECK GC".to_owned(), 1));
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        std::fs::write(&path, line("STATUS")).unwrap();
        assert_eq!(verbs(), ("STATUS".to_owned(), 2));
        std::fs::write(&path, "").unwrap();
        assert_eq!(verbs(), (String::new(), 3));
    }
}
