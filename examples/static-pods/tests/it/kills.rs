//! `kill -9` at any moment, then a start: every pod exactly once, nothing leaked.

use crate::scene::{Scene, Traces};
use std::time::Duration;

/// Kills while pods come up, while they go, and in between; the time it takes to come up is covered from end to end.
#[test]
fn every_pod_is_there_once_whenever_the_program_was_killed() {
    let scene = Scene::new();
    let names = ["a", "b", "c"];
    for moment in 0..24 {
        // With each start a pod comes, another goes and the third changes.
        for (index, name) in names.iter().enumerate() {
            match (moment + index) % 3 {
                0 => std::fs::remove_file(format!("/run/manifests/{name}.yaml")).unwrap_or_default(),
                1 => scene.write_pod(name, &format!("hostname: h{moment}")),
                _ => scene.write_pod(name, ""),
            }
        }
        let mut program = scene.start();
        program.goes_on_for(Duration::from_millis(moment as u64 * 12));
        program.kill();
        if moment % 4 == 3 {
            settle(&scene, &names);
        }
    }
    for name in names {
        scene.write_pod(name, "");
    }
    let mut program = scene.start();
    program.wait_for_all(names.map(|name| format!("pod default/{name}: Running")));
    assert_eq!(scene.traces(), Traces::of(names.len()), "{}", program.text());
    assert!(program.terminate().success(), "{}", program.text());
    scene.assert_nothing_is_left();
}

/// A run that may end in peace makes exactly what is wanted.
#[track_caller]
fn settle(scene: &Scene, names: &[&str]) {
    let output = testns::run(scene.command(&["--once"]), b"", crate::program::DEADLINE);
    assert_eq!(output.code(), 0, "{output:?}");
    let wanted = names.iter().filter(|name| std::path::Path::new(&format!("/run/manifests/{name}.yaml")).exists());
    assert_eq!(scene.traces(), Traces::of(wanted.count()), "{output:?}");
}

/// `kill -9` while all is being taken down.
#[test]
fn a_tear_down_that_was_killed_is_finished() {
    let scene = Scene::new();
    let names = ["a", "b", "c"];
    for moment in 0..8 {
        for name in names {
            scene.write_pod(name, "");
        }
        let mut program = scene.start();
        program.wait_for_all(names.map(|name| format!("pod default/{name}: Running")));
        program.signal(nix::sys::signal::SIGTERM);
        program.goes_on_for(Duration::from_millis(moment * 15));
        program.kill();
        for name in names {
            scene.remove_manifest(&format!("{name}.yaml"));
        }
        let output = testns::run(scene.command(&["--once"]), b"", crate::program::DEADLINE);
        assert_eq!(output.code(), 0, "{output:?}");
        scene.assert_nothing_is_left();
    }
}
