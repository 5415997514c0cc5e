//! Stress: a disk that is full.
//!
//! Small file systems are put over the places where plugins keep state, and filled up to a few pages or inodes. What a
//! program makes of a write that fails at one point only is asked by the rules `faults.disk-errors`.

use crate::profile::Stage;
use crate::rules::prelude::*;
use crate::stress::operations::{is_proper, within};
use crate::stress::recovery::Recovery;
use nix::mount::{MsFlags, mount};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

pub(super) const CASES: &[Code] = &[
    ("disk.add-on-a-full-disk/bytes", |testbed| add_on_a_full_disk(testbed, Want::Pages)),
    ("disk.add-on-a-full-disk/files", |testbed| add_on_a_full_disk(testbed, Want::Inodes)),
    ("disk.add-on-a-full-disk/read-only", add_on_a_read_only_disk),
    ("disk.del-on-a-full-disk", del_on_a_full_disk),
];

/// The folders in which plugins keep state: those of the reference set, and of all who follow it.
const PLACES: [&str; 3] = ["/var/lib/cni", "/run/cni", "/run/lock"];
const PAGE: usize = 4096;
const OPTIONS: &str = "mode=0755,size=1m,nr_inodes=200";

/// The resource that there is too little of.
#[derive(Debug, Clone, Copy)]
enum Want {
    Pages,
    Inodes,
}

struct Disks;

impl Disks {
    fn lay() -> Self {
        for place in PLACES {
            fs::create_dir_all(place).unwrap_or_else(|error| panic!("cannot create {place}: {error}"));
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            mount(Some("tmpfs"), place, Some("tmpfs"), flags, Some(OPTIONS))
                .unwrap_or_else(|errno| panic!("cannot mount a tmpfs on {place}: {errno}"));
        }
        Self
    }

    /// Leaves so much free on each.
    fn fill(&self, want: Want, free: usize) {
        for place in PLACES {
            match want {
                Want::Pages => fill_pages(&ballast(place), free),
                Want::Inodes => fill_inodes(&ballast(place), free),
            }
        }
    }

    fn make_room(&self) {
        for place in PLACES {
            let path = ballast(place);
            // Whichever of the two it is.
            let removed = fs::remove_file(&path).or_else(|_no_file| fs::remove_dir_all(&path));
            removed.unwrap_or_else(|error| panic!("cannot remove {}: {error}", path.display()));
        }
    }

    fn remount(&self, flags: MsFlags) {
        for place in PLACES {
            let flags = flags | MsFlags::MS_REMOUNT | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            mount(None::<&str>, place, None::<&str>, flags, Some(OPTIONS))
                .unwrap_or_else(|errno| panic!("cannot remount {place}: {errno}"));
        }
    }
}

fn ballast(place: &str) -> PathBuf {
    Path::new(place).join(".ballast")
}

/// Writes pages until no more fit, then gives some back.
fn fill_pages(path: &Path, free: usize) {
    let filled = || {
        let mut file = fs::File::create(path)?;
        let mut pages = 0;
        while file.write_all(&[0; PAGE]).is_ok() {
            pages += 1;
        }
        let length = u64::try_from(PAGE * usize::saturating_sub(pages, free)).unwrap_or_default();
        file.set_len(length)
    };
    filled().unwrap_or_else(|error: std::io::Error| panic!("cannot fill {}: {error}", path.display()));
}

/// Makes files until no more can be made, then removes some.
fn fill_inodes(path: &Path, free: usize) {
    fs::create_dir(path).unwrap_or_else(|error| panic!("cannot create {}: {error}", path.display()));
    let file = |number: usize| path.join(number.to_string());
    let count = (0..).take_while(|number| fs::File::create_new(file(*number)).is_ok()).count();
    for number in count.saturating_sub(free)..count {
        fs::remove_file(file(number)).unwrap_or_else(|error| panic!("cannot remove a file: {error}"));
    }
}

/// The containers of the cases, and the disks that they fill.
struct FullDisk<'a> {
    recovery: Recovery<'a>,
    disks: Disks,
}

impl<'a> FullDisk<'a> {
    fn new(testbed: &'a Testbed) -> Result<Self, Stop> {
        let has_daemon = testbed.profile.stage.iter().any(|part| matches!(part, Stage::Daemon { .. }));
        Stop::skip_if(has_daemon, "its daemon runs already, with a socket that an empty disk would hide")?;
        let disks = Disks::lay();
        Ok(Self { recovery: Recovery::new(testbed)?, disks })
    }

    /// ADD as it comes, then room, DEL, and another container.
    fn add(&self, when: &str, make_room: impl Fn()) -> Result<(), Stop> {
        let Recovery { operations, pod, other, .. } = &self.recovery;
        let attachment = pod.attachment();
        let added = operations.testbed.try_add(&attachment)?;
        make_room();
        if let Err(answer) = &added {
            is_proper(answer).map_err(|stop| within(stop, &format!("with {when}")))?;
        }
        let after = format!("ADD with {when}");
        if let Ok(result) = &added {
            let check = operations.check(&attachment, result);
            check.map_err(|stop| within(stop, &format!("of CHECK after {after}")))?;
        }
        let done = operations.testbed.del(&attachment, added.as_ref().ok());
        done.map_err(|stop| within(stop, &format!("of DEL after {after}")))?;
        operations.nothing_is_left(&format!("{after}, and DEL"))?;
        operations.others_are_served(other, &after)
    }
}

fn add_on_a_full_disk(testbed: &Testbed, want: Want) -> Result<(), Stop> {
    let full = FullDisk::new(testbed)?;
    for free in 0..8 {
        testbed.forget_calls();
        full.disks.fill(want, free);
        full.add(&format!("{free} {want:?} free").to_lowercase(), || full.disks.make_room())?;
    }
    Ok(())
}

fn add_on_a_read_only_disk(testbed: &Testbed) -> Result<(), Stop> {
    let full = FullDisk::new(testbed)?;
    full.disks.remount(MsFlags::MS_RDONLY);
    full.add("a read-only disk", || full.disks.remount(MsFlags::empty()))
}

fn del_on_a_full_disk(testbed: &Testbed) -> Result<(), Stop> {
    let full = FullDisk::new(testbed)?;
    let Recovery { operations, pod, other, .. } = &full.recovery;
    let attachment = pod.attachment();
    for want in [Want::Pages, Want::Inodes] {
        testbed.forget_calls();
        let result = operations.testbed.add(pod)?;
        full.disks.fill(want, 0);
        let done = operations.testbed.del(&attachment, Some(&result));
        full.disks.make_room();
        done.map_err(|stop| within(stop, &format!("of DEL with no {want:?} free").to_lowercase()))?;
        operations.nothing_is_left("DEL on a full disk")?;
        operations.others_are_served(other, "DEL on a full disk")?;
    }
    Ok(())
}
