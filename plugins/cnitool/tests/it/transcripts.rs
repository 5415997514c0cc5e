//! Transcripts: each section (`== `) of a file has a [`Tool`] of its own, in whose folder a shell executes the commands (`$ `, and `> `
//! for more lines of one), after `prelude.sh` and with mounts of its own. Below a command is what it prints: stdout, then stderr
//! (`! `), then a code other than 0 (`=> `). Comments begin with `# `.

use crate::fixture::Tool;
use expect_test::{ExpectFile, expect_file};

/// Plays a section: its commands, each with what it prints.
fn played(section: &str) -> String {
    let (tool, mut shown) = (Tool::new(), String::new());
    for text in section.replace("\n> ", "\r> ").lines().filter(|text| ["== ", "# ", "$ "].contains(&mark(text))) {
        shown += &text.replace('\r', "\n");
        shown.push('\n');
        let Some(command) = text.strip_prefix("$ ") else { continue };
        let ended = tool.shell(&command.replace("\r> ", "\n"));
        shown.extend(ended.stdout.lines().map(|line| format!("{line}\n")));
        shown.extend(ended.stderr.lines().map(|line| format!("! {line}\n")));
        if ended.code != 0 {
            shown += &format!("=> {}\n", ended.code);
        }
    }
    shown
}

fn mark(text: &str) -> &str {
    text.split_inclusive(' ').next().unwrap_or_default()
}

fn check(file: &ExpectFile) {
    let text = format!("\n{}", file.data());
    let sections: Vec<_> = text.split("\n== ").skip(1).map(|section| format!("== {section}")).collect();
    assert!(!sections.is_empty(), "{file:?}");
    let mut shown = Vec::new();
    for some in sections.chunks(4) {
        std::thread::scope(|scope| {
            let playing: Vec<_> = some.iter().map(|section| scope.spawn(|| played(section))).collect();
            shown.extend(playing.into_iter().map(|section| section.join().unwrap()));
        });
    }
    file.assert_eq(&shown.join("\n"));
}

macro_rules! transcripts {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            check(&expect_file![concat!("transcripts/", stringify!($name), ".txt")]);
        }
    )* };
}

transcripts! {
    add_check_del cluster completions gc_and_attachments install ipam log metrics network_folder options_and_errors
    status_and_version validate verify
}
