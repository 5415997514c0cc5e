//! Man pages of the program and its verbs (section 1), with the words of `--help`. Those of network files (5) and of plugins (8) are
//! made from the schemas when a release is packed (`plugins/packages/man-pages`).

use crate::error_remedies::Remedy;
use crate::{RELEASE, args};
use anyhow::Context;
use std::path::Path;
use std::{fs, io};

/// The exit status of verbs whose help has none.
const EXIT_STATUS: &str = "  0    done\n  1    the operation failed; stderr says why\n  2    the command line is wrong";

/// The sections at the end of each page of a verb, in the language of man(7).
const COMMON_SECTIONS: &str = r#"After a signal the status is 128 and its number; an ADD was rolled back then.
.SH ENVIRONMENT
.TP
NETCONFPATH
As \-\-conf\-dir.
.TP
CNI_PATH
As \-\-cni\-path.
.TP
CNI_IFNAME, CNI_ARGS, CAP_ARGS
As \-\-ifname, \-\-args and \-\-cap\-args.
.TP
CNI_LOG
Where calls are logged to: off, stderr, journal, file or an absolute path.
.TP
NO_COLOR
No colours, if it is not empty.
.SH FILES
.TP
/etc/cni/net.d
Configurations of networks, .conflist and .conf, in the order of their names.
.TP
/opt/cni/bin
Plugins.
.TP
/var/lib/cni
The cache (results), and host\-local's addresses (networks).
.TP
/etc/cni/log
One word: where calls of this node are logged to.
.SH "SEE ALSO"
cni\-conflist(5), and a page of each plugin, such as cni\-bridge(8); https://www.cni.dev/docs/spec/
"#;

/// A page: its file's name and its text.
type Page = (String, String);

/// Writes all pages into the folder `man1` of a folder. Each page is whole, old or new.
pub(crate) fn write(dir: &Path) -> anyhow::Result<()> {
    let failed = || format!("cannot write man pages into {}", dir.display());
    let written = fs::read_dir(dir).and_then(|_| stage(dir, &pages()?));
    written.with_context(failed).if_absent(|| format!("Make the folder first: mkdir -p {}", dir.display()))
}

fn pages() -> io::Result<Vec<Page>> {
    let mut pages = Vec::new();
    verb_pages(args::grammar(), "cnitool", &mut pages)?;
    Ok(pages)
}

fn verb_pages(verb: clap::Command, name: &str, pages: &mut Vec<Page>) -> io::Result<()> {
    for below in verb.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        verb_pages(below.clone(), &format!("{name}-{}", below.get_name()), pages)?;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(verb.display_name(name.to_owned())).title(name.to_owned()).render(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let (before, extra) = text.split_once(".SH EXTRA\n").unwrap_or((&text, ""));
    let (codes, examples) = extra.split_once("Examples:\n").unwrap_or((extra, ""));
    let codes = codes.trim().strip_prefix("Exit codes:\n").unwrap_or(EXIT_STATUS);
    // Lines as they are, so that a command can be copied.
    let text = format!(
        "{}\n.SH EXAMPLES\n.nf\n{}\n.fi\n.SH \"EXIT STATUS\"\n.nf\n{codes}\n.fi\n.PP\n{COMMON_SECTIONS}",
        before.trim_end(),
        examples.trim_end()
    );
    pages.push((format!("{name}.1"), titled(&text, name)));
    Ok(())
}

/// The page with its title: `roff` writes no empty argument, such as the date, so the next one would be the date.
fn titled(page: &str, name: &str) -> String {
    let title = format!(".TH {name} 1 \"\" \"cni-plugins {RELEASE}\" \"Container networking\"");
    let line = |line: &str| if line.starts_with(".TH ") { title.clone() } else { line.to_owned() };
    page.lines().map(|text| line(text) + "\n").collect()
}

/// Writes all pages beside their places first, so a full disk leaves the old ones.
fn stage(dir: &Path, pages: &[Page]) -> io::Result<()> {
    let folder = dir.join("man1");
    let place = |name: &str| folder.join(name);
    let beside = |name: &str| netops::file::unfinished(&place(name));
    let written = fs::create_dir_all(&folder);
    let written = written.and_then(|()| {
        pages.iter().try_for_each(|(name, text)| {
            // In the place of what a killed writer left, and not in what a link there leads to.
            fs::remove_file(beside(name))
                .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
            fs::write(beside(name), text)
        })
    });
    let placed = written.and_then(|()| pages.iter().try_for_each(|(name, _)| fs::rename(beside(name), place(name))));
    if placed.is_err() {
        // What cannot be removed only takes space; a folder with pages stays.
        pages.iter().for_each(|(name, _)| drop(fs::remove_file(beside(name))));
        drop(fs::remove_dir(&folder));
    }
    placed
}
