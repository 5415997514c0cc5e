//! Any sequence of changes: a folder has the result of a fresh reading.

use super::test_folders::{ALL_VERSIONS, TestFolders, network, wait};
use pods::networks::Networks;
use proptest::prelude::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

/// The folder is `etc/net.d`, executables are in `bin` and `more/bin`. `x` and `y` lie outside.
const DIRS: [&str; 9] = ["etc", "etc/net.d", "etc/net.d/n", "bin", "more", "more/bin", "x", "x/n", "y"];
const FILES: [&str; 7] = ["1.conflist", "2.conf", "3.json", "a", "b", "n", "net.d"];

#[derive(Debug, Clone)]
enum Change {
    Write(String, u8),
    Rename(String, String),
    Exchange(String, String),
    Remove(String),
    MakeDir(String),
    Link(String, String),
    HardLink(String, String),
    Mode(String, u32),
}

fn path() -> impl Strategy<Value = String> {
    let file = (prop::sample::select(&DIRS[..]), prop::sample::select(&FILES[..]));
    prop_oneof![
        1 => prop::sample::select(&DIRS[..]).prop_map(str::to_owned),
        2 => file.prop_map(|(dir, file)| format!("{dir}/{file}")),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (path(), 0..6_u8).prop_map(|(path, what)| Change::Write(path, what)),
        4 => (path(), path()).prop_map(|(from, to)| Change::Rename(from, to)),
        1 => (path(), path()).prop_map(|(from, to)| Change::Exchange(from, to)),
        2 => path().prop_map(Change::Remove),
        3 => path().prop_map(Change::MakeDir),
        2 => (path(), path()).prop_map(|(target, link)| Change::Link(target, link)),
        1 => (path(), path()).prop_map(|(target, link)| Change::HardLink(target, link)),
        1 => (path(), prop::sample::select(&[0o755_u32, 0o644][..])).prop_map(|(path, mode)| Change::Mode(path, mode)),
    ]
}

/// The contents of files: networks, a plugin's object, and something broken.
fn text(what: u8) -> String {
    match what {
        0 => network("n"),
        1 => network("m"),
        2 => r#"{"cniVersion":"1.0.0","name":"o","type":"b"}"#.into(),
        3 => r#"{"cniVersion":"1.0.0","type":"a"}"#.into(),
        4 => format!("#!/bin/sh\n{ALL_VERSIONS}"),
        _ => "{}".into(),
    }
}

/// Makes a change; many are impossible in the current state, and then nothing happens.
fn make(node: &TestFolders, change: &Change) {
    let full = |path: &str| node.path(path);
    let outcome = match change {
        Change::Write(path, what) => testns::write_unshared(full(path), text(*what)).and_then(|()| match what {
            4 => fs::set_permissions(full(path), Permissions::from_mode(0o755)),
            _ => Ok(()),
        }),
        Change::Rename(from, to) => fs::rename(full(from), full(to)),
        Change::Exchange(from, to) => {
            let flags = nix::fcntl::RenameFlags::RENAME_EXCHANGE;
            nix::fcntl::renameat2(nix::fcntl::AT_FDCWD, &full(from), nix::fcntl::AT_FDCWD, &full(to), flags)
                .map_err(Into::into)
        }
        Change::Remove(path) if full(path).is_dir() && !full(path).is_symlink() => fs::remove_dir_all(full(path)),
        Change::Remove(path) => fs::remove_file(full(path)),
        Change::MakeDir(path) => fs::create_dir_all(full(path)),
        Change::Link(target, link) => std::os::unix::fs::symlink(full(target), full(link)),
        Change::HardLink(target, link) => fs::hard_link(full(target), full(link)),
        Change::Mode(path, mode) => fs::set_permissions(full(path), Permissions::from_mode(*mode)),
    };
    drop(outcome);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_folder_gives_what_a_fresh_reading_gives(changes in prop::collection::vec(change(), 1..60)) {
        wait(async {
            let node = TestFolders::bare();
            node.make_dir("bin").make_dir("x").plugin("bin/a", ALL_VERSIONS).network("etc/net.d/1.conflist", "n");
            let folder = node.open_at(&node.path("etc/net.d"));
            for change in &changes {
                make(&node, change);
                let fresh = node.show(&Networks::read(folder.dir(), &node.runtime()).await);
                node.until(&folder, |networks| node.show(networks) == fresh).await;
            }
        });
    }
}
