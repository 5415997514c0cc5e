//! Attempts to get one address owned twice, or a living container's address freed: copies of a folder, clocks that go back, full and read-only
//! disks, calls that take too long, and a store that is away at the wrong moment.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MsFlags, mount, umount};
use serde_json::json;

use crate::test_cluster::{Machine, TestCluster, assert_distinct, assert_refused, copy};

fn cluster(claim_size: u32) -> TestCluster {
    TestCluster::new(json!({ "subnet": "10.9.0.0/27", "claimSize": claim_size }))
}

/// Puts the data folder of a machine back from a backup.
fn restore(machine: &Machine<'_>, backup: &std::path::Path) {
    fs::remove_dir_all(machine.data()).unwrap();
    copy(backup, &machine.data());
}

#[test]
fn a_restored_folder_gives_nothing_and_repair_does_not_free_what_it_has_forgotten() {
    let cluster = cluster(2);
    let (a, b) = (cluster.machine("a"), cluster.machine("b"));
    let mut given: Vec<String> = (0..2).map(|number| a.add(&format!("a{number}")).unwrap()).collect();
    a.upkeep();
    let backup = cluster.folder.path().join("backup");
    copy(&a.data(), &backup);
    given.extend((2..8).map(|number| a.add(&format!("a{number}")).unwrap()));
    a.upkeep();
    let before = cluster.state();
    restore(&a, &backup);
    // The copy is as old as a minute: its trust would last.
    for _ in 0..2 {
        assert_refused(&a.add("a9"), 106, &["another data folder is recorded", "restored", "cnitool cluster forget"]);
    }
    for words in [&["repair"][..], &["check"]] {
        assert!(a.operator_fails(words).contains("another data folder is recorded"), "{words:?}");
    }
    assert_eq!(
        cluster.state().runs_of("a").collect::<Vec<_>>(),
        before.runs_of("a").collect::<Vec<_>>(),
        "no run of a living container is freed"
    );
    let (others, _) = b.fill();
    assert_distinct(given.iter().chain(&others));
}

/// A folder that was moved, as to a larger disk, is a copy with the newest records: the store confirms it.
#[test]
fn a_folder_that_was_moved_goes_on_when_the_store_confirms_it() {
    let cluster = cluster(4);
    let a = cluster.machine("a");
    let mut given = vec![a.add("a0").unwrap()];
    a.upkeep();
    let moved = cluster.folder.path().join("moved");
    copy(&a.data(), &moved);
    let away = cluster.folder.path().join("away");
    fs::rename(cluster.store(), &away).unwrap();
    restore(&a, &moved);
    assert_refused(&a.add("a1"), 11, &["store"]);
    fs::rename(&away, cluster.store()).unwrap();
    a.upkeep();
    given.extend((1..4).map(|number| a.add(&format!("a{number}")).unwrap()));
    assert_distinct(given.iter());
}

#[test]
fn a_copy_of_a_running_machine_gives_nothing_while_the_trust_of_the_original_lasts() {
    let cluster = cluster(4);
    // The second has no network card, as a node in a container.
    for (name, card) in [("a", "0a:00:00:00:99:99"), ("b", "")] {
        let mut original = cluster.machine(name);
        if card.is_empty() {
            original.card.clear();
        }
        original.add("c0").unwrap();
        let mut clone = cluster.machine(name);
        clone.home = cluster.folder.path().join(format!("clone-of-{name}"));
        copy(&original.home, &clone.home);
        clone.card = card.to_owned();
        for _ in 0..2 {
            assert_refused(&clone.add("c1"), 106, &["copy of the recorded one"]);
        }
        original.add("c2").unwrap();
    }
}

/// As in another time namespace, or a machine that went back to a snapshot of its memory: the reading is of the future.
#[test]
fn a_reading_of_the_future_is_not_trusted() {
    let cluster = cluster(4);
    let mut a = cluster.machine("a");
    a.later_seconds = 400_000;
    a.add("c0").unwrap();
    a.later_seconds = 0;
    let away = cluster.folder.path().join("away");
    fs::rename(cluster.store(), &away).unwrap();
    assert_refused(&a.add("c1"), 11, &["store"]);
    fs::rename(&away, cluster.store()).unwrap();
    a.upkeep();
    a.add("c1").unwrap();
}

/// A file that `cp -a` writes over has the same number, and may have the number that its content names: the time at which it was made, and the device, differ.
#[test]
fn a_view_names_the_number_the_device_and_the_time_of_its_file() {
    let cluster = cluster(2);
    let a = cluster.machine("a");
    a.add("a0").unwrap();
    a.upkeep();
    let about = fs::metadata(a.data().join("cluster/view")).unwrap();
    let made = about.created().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    let view = a.view();
    assert_eq!((&view["inode"], &view["device"]), (&json!(about.ino()), &json!(about.dev())));
    assert_eq!(u128::from(view["madeAtNs"].as_u64().unwrap()), made);
    for key in ["inode", "device", "madeAtNs"] {
        let mut copied = a.view();
        copied[key] = json!(copied[key].as_u64().unwrap() - 1);
        let away = cluster.folder.path().join("away");
        fs::rename(cluster.store(), &away).unwrap();
        fs::write(a.data().join("cluster/view"), copied.to_string()).unwrap();
        assert_refused(&a.add("a1"), 11, &["store"]);
        fs::rename(&away, cluster.store()).unwrap();
        a.upkeep();
    }
}

/// The machine was paused for longer than its trust, so its clock stood still, and has the time of day again.
#[test]
fn a_machine_that_was_paused_for_longer_than_its_trust_gives_nothing_without_the_store() {
    let cluster = cluster(4);
    let a = cluster.machine("a");
    a.add("c0").unwrap();
    a.upkeep();
    let mut view = a.view();
    view["readAtS"] = json!(view["readAtS"].as_u64().unwrap() - 3700);
    fs::write(a.data().join("cluster/view"), view.to_string()).unwrap();
    let away = cluster.folder.path().join("away");
    fs::rename(cluster.store(), &away).unwrap();
    assert_refused(&a.add("c1"), 11, &["store"]);
    fs::rename(&away, cluster.store()).unwrap();
    a.upkeep();
    a.add("c1").unwrap();
}

/// A claim whose pod lives on a node that comes back is held by that node again, so no operator can release it.
#[test]
fn a_forgotten_node_that_comes_back_holds_the_claims_of_its_living_containers() {
    let cluster = cluster(4);
    let (mut a, b) = (cluster.machine("a"), cluster.machine("b"));
    let address = a.call("ADD", "vm", "claim=db", &a.config()).unwrap();
    a.call("ADD", "gone", "claim=old", &a.config()).unwrap();
    b.add("c0").unwrap();
    b.operator(&["forget", "a", "--fenced", "--force"]);
    fs::remove_file(a.data().join(a.view()["claims"]["old"][0].as_str().unwrap())).unwrap();
    a.later_seconds = 4000;
    a.add("more").unwrap();
    assert!(b.operator_fails(&["release", "db"]).contains("claim db is held by a"));
    b.operator(&["release", "old"]);
    a.operator(&["check"]);
    let (others, _) = b.fill();
    assert!(!others.contains(&address), "{others:?}");
}

/// Another node would give the addresses of a returned run at once.
#[test]
fn a_run_whose_addresses_cool_down_is_not_given_back() {
    let mut cluster =
        TestCluster::new(json!({ "subnet": "10.9.0.0/28", "claimSize": 2, "releaseCooldownSeconds": 3600 }));
    let given: Vec<String> = {
        let a = cluster.machine("a");
        (0..6).map(|number| a.add(&format!("a{number}")).unwrap()).collect()
    };
    let release = |cluster: &TestCluster| {
        let a = cluster.machine("a");
        (0..6).for_each(|number| a.del(&format!("a{number}")));
        a.upkeep();
    };
    release(&cluster);
    let (others, _) = cluster.machine("b").fill();
    assert!(!others.is_empty() && others.iter().all(|other| !given.contains(other)), "{others:?} of {given:?}");
    // Without the key they do go back.
    cluster.keys["releaseCooldownSeconds"] = json!(0);
    release(&cluster);
    let (more, _) = cluster.machine("b").fill_as("more");
    assert!(more.iter().any(|address| given.contains(address)), "{more:?}");
}

/// ADD has read its view and stops before it reserves, until its node was forgotten and another one has its addresses.
#[test]
fn an_add_that_was_stopped_for_longer_than_its_trust_gives_no_address_of_another_node() {
    let cluster = cluster(4);
    let (a, b) = (cluster.machine("a"), cluster.machine("b"));
    let first = a.add("c0").unwrap();
    let lock = fs::File::open(a.data().join("lock")).unwrap();
    let held = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
    let (late, others) = thread::scope(|scope| {
        let add = scope.spawn(|| a.add("late"));
        wait_until_one_waits_for(&a.data().join("lock"));
        // The time of its trust passes.
        let path = a.data().join("cluster/view");
        let mut view = a.view();
        view["trustSeconds"] = json!(0);
        let next = path.with_extension("next");
        fs::write(&next, view.to_string()).unwrap();
        fs::rename(&next, &path).unwrap();
        b.operator(&["forget", "a", "--fenced", "--force"]);
        let (others, _) = b.fill();
        drop(held);
        (add.join().unwrap(), others)
    });
    assert!(others.contains(&first), "the addresses of a are b's: {others:?}");
    // All are b's now.
    assert_refused(&late, 105, &["no IP addresses available"]);
    assert!(!a.data().join("10.9.0.3").exists(), "what it reserved is undone");
}

/// A container with the claim comes between upkeep's look at the claims and its lock.
#[test]
fn a_claim_that_gets_a_container_meanwhile_stays_the_nodes() {
    let cluster = cluster(4);
    let machine = cluster.machine("a");
    let address = machine.call("ADD", "p1", "claim=db", &machine.config()).unwrap();
    let file = machine.data().join(address.split('/').next().unwrap());
    fs::remove_file(&file).unwrap();
    beside(&machine.data().join("lock"), || machine.upkeep(), || fs::write(&file, "p2\r\neth0").unwrap());
    assert!(cluster.state().claims["db"].holders.contains("a"));
}

/// A container comes between the look at the containers and the lock.
#[test]
fn a_node_whose_container_comes_meanwhile_does_not_leave() {
    let cluster = cluster(4);
    let machine = cluster.machine("a");
    let address = machine.add("c0").unwrap();
    machine.del("c0");
    machine.upkeep();
    let again = machine.add("c1").unwrap();
    let file = machine.data().join(again.split('/').next().unwrap());
    fs::remove_file(&file).unwrap();
    let leave = || assert!(machine.operator_fails(&["leave"]).contains("containers of this node"));
    beside(&machine.data().join("lock"), leave, || fs::write(&file, "c2\r\neth0").unwrap());
    assert!(cluster.state().runs_of("a").any(|run| run.to_string().contains(address.split('/').next().unwrap())));
}

/// Does `meanwhile` when the work waits for the lock.
fn beside<T: Send>(path: &std::path::Path, work: impl FnOnce() -> T + Send, meanwhile: impl FnOnce()) {
    let held = Flock::lock(fs::File::open(path).unwrap(), FlockArg::LockExclusive).unwrap();
    thread::scope(|scope| {
        let work = scope.spawn(work);
        let number = format!(":{} ", fs::metadata(path).unwrap().ino());
        let is_waiting = |line: &str| line.contains("->") && line.contains(&number);
        while !work.is_finished() && !fs::read_to_string("/proc/locks").unwrap().lines().any(is_waiting) {
            thread::yield_now();
        }
        meanwhile();
        drop(held);
        work.join().unwrap();
    });
}

/// STATUS has read the view before another call's claim, and the store behind it: it changes nothing, and looks again when that call has ended.
#[test]
fn status_beside_a_claim_is_not_misled() {
    let cluster = cluster(1);
    let machine = cluster.machine("a");
    machine.add("c0").unwrap();
    machine.upkeep();
    let path = machine.data().join("cluster/view");
    let mut old = machine.view();
    // So the store is asked.
    old["trustSeconds"] = json!(0);
    (1..9).for_each(|number| drop(machine.add(&format!("c{number}")).unwrap()));
    machine.upkeep();
    let new = fs::read(&path).unwrap();
    fs::write(&path, old.to_string()).unwrap();
    let meanwhile = || {
        assert_eq!(fs::read_to_string(&path).unwrap(), old.to_string());
        fs::write(&path, new).unwrap();
    };
    beside(&path.with_file_name("lock"), || machine.status().unwrap(), meanwhile);
    machine.add("c9").unwrap();
}

/// Another call has the lock, and finds out for itself that the store is away.
#[test]
fn status_notes_in_no_view_that_the_store_is_away_while_another_call_has_the_lock() {
    let cluster = cluster(1);
    let machine = cluster.machine("a");
    machine.add("c0").unwrap();
    machine.upkeep();
    let path = machine.data().join("cluster/view");
    let _held = Flock::lock(fs::File::open(path.with_file_name("lock")).unwrap(), FlockArg::LockExclusive).unwrap();
    let mut view = machine.view();
    view["trustSeconds"] = json!(0);
    fs::write(&path, view.to_string()).unwrap();
    fs::rename(cluster.store(), cluster.folder.path().join("away")).unwrap();
    assert_refused(&machine.status(), 50, &["store"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), view.to_string());
}

/// The first write of a node that was forgotten fails, and it comes back with the next.
#[test]
fn a_forgotten_node_comes_back_though_its_first_write_fails() {
    let cluster = cluster(4);
    let (a, b) = (cluster.machine("a"), cluster.machine("b"));
    let first = a.add("c0").unwrap();
    b.add("c0").unwrap();
    b.operator(&["forget", "a", "--fenced", "--force"]);
    let mut view = a.view();
    view["trustSeconds"] = json!(0);
    fs::write(a.data().join("cluster/view"), view.to_string()).unwrap();
    let store = cluster.store();
    let remount = |flags| {
        mount(None::<&str>, &store, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | flags, None::<&str>).unwrap()
    };
    mount(Some(&store), &store, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    remount(MsFlags::MS_RDONLY);
    assert_refused(&a.add("c1"), 11, &["read-only"]);
    umount(&store).unwrap();
    a.upkeep();
    let again = a.add("c1").unwrap();
    assert_ne!(again, first);
}

/// Addresses that a narrower range leaves out are given back; a want that no ADD comes for is taken back; another name is refused at once.
#[test]
fn what_the_configuration_says_no_longer_is_given_up() {
    let mut cluster = TestCluster::new(json!({ "subnet": "10.9.0.0/28", "claimSize": 8 }));
    assert_eq!(cluster.machine("a").add("c0").unwrap(), "10.9.0.2/28");
    cluster.machine("a").add("c1").unwrap();
    cluster.machine("a").del("c1");
    cluster.keys["rangeEnd"] = json!("10.9.0.2");
    let mut machine = cluster.machine("a");
    machine.upkeep();
    let runs: Vec<_> = cluster.state().runs_of("a").map(|run| run.to_string()).collect();
    assert_eq!(runs, ["10.9.0.2-10.9.0.2"]);
    assert_refused(&machine.add("c1"), 105, &["cnitool cluster release net"]);
    let wants = || cluster.newest("wants/a");
    assert!(fs::metadata(wants().0.join(wants().1.to_string())).unwrap().len() > 0);
    machine.later_seconds = 90;
    machine.status().ok();
    let is_wanted = || fs::metadata(wants().0.join(wants().1.to_string())).unwrap().len() > 0;
    let start = Instant::now();
    // Where a process that an earlier call has started is at work, this one leaves it the work.
    while is_wanted() && start.elapsed() < Duration::from_secs(30) {
        machine.operator(&["upkeep", "--if-due"]);
    }
    assert!(!is_wanted(), "nobody wants it any more");
    machine.del("c0");
    machine.name = "other".to_owned();
    assert_refused(&machine.add("c2"), 106, &["the data folder is node a's"]);
}

/// Waits until a process waits for a lock, as the kernel lists it.
fn wait_until_one_waits_for(path: &std::path::Path) {
    let number = format!(":{} ", fs::metadata(path).unwrap().ino());
    let is_waiting = |line: &str| line.contains("->") && line.contains(&number);
    while !fs::read_to_string("/proc/locks").unwrap().lines().any(is_waiting) {
        thread::yield_now();
    }
}

/// The data folder of a machine on a disk of its own.
fn on_a_small_disk(machine: &Machine<'_>) {
    fs::create_dir_all(machine.data()).unwrap();
    mount(Some("tmpfs"), &machine.data(), Some("tmpfs"), MsFlags::empty(), Some("size=64k")).unwrap();
}

#[test]
fn a_full_or_read_only_disk_gives_nothing_and_loses_nothing() {
    let cluster = cluster(2);
    let (a, b) = (cluster.machine("a"), cluster.machine("b"));
    on_a_small_disk(&a);
    let mut given: Vec<String> = (0..2).map(|number| a.add(&format!("a{number}")).unwrap()).collect();
    let rest = a.data().join("rest");
    fs::write(&rest, vec![0; 60 << 10]).unwrap_err();
    a.add("a2").unwrap_err();
    b.add("b0").map(|address| given.push(address)).unwrap();
    fs::remove_file(&rest).unwrap();
    given.extend((2..5).map(|number| a.add(&format!("a{number}")).unwrap()));
    let remount =
        |flags| mount(None::<&str>, &a.data(), None::<&str>, MsFlags::MS_REMOUNT | flags, None::<&str>).unwrap();
    remount(MsFlags::MS_RDONLY);
    a.add("a5").unwrap_err();
    a.call("DEL", "a0", "", &a.config()).unwrap_err();
    remount(MsFlags::empty());
    a.del("a0");
    given.remove(0);
    given.push(a.add("a5").unwrap());
    given.extend(b.fill().0);
    assert_distinct(given.iter());
    for machine in [&a, &b] {
        machine.operator(&["check"]);
    }
    umount(&a.data()).unwrap();
}

/// What another release has recorded would be dropped by a write.
#[test]
fn a_record_of_a_newer_release_is_not_written() {
    let cluster = cluster(2);
    cluster.machine("a").add("c0").unwrap();
    for key in ["network", "nodes/a", "runs/10.9.0.0"] {
        cluster.overwrite(key, |record| record["lease"] = json!(1));
        let (folder, number) = cluster.newest(key);
        let mut a = cluster.machine("a");
        a.later_seconds = 4000;
        assert_refused(&a.call("ADD", "c1", "IP=10.9.0.20", &a.config()), 106, &[key, "upgrade this node"]);
        fs::remove_file(folder.join(number.to_string())).unwrap();
    }
    cluster.overwrite("network", |record| record["form"] = json!(3));
    assert_refused(&cluster.machine("b").add("c1"), 106, &["form 3", "Upgrade this node"]);
}

#[test]
fn runtimes_that_call_at_once_on_several_nodes_get_no_address_twice() {
    let cluster = cluster(2);
    let machines = ["a", "b"].map(|name| cluster.machine(name));
    let given: Vec<String> = thread::scope(|scope| {
        let of = |(machine, runtime)| scope.spawn(move || Machine::fill_as(machine, &format!("r{runtime}")).0);
        let all = machines.iter().flat_map(|machine| (0..3).map(move |runtime| (machine, runtime)));
        let threads: Vec<_> = all.map(of).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_distinct(given.iter());
    assert_eq!(given.len(), 29);
}

#[test]
fn two_nodes_that_claim_one_name_at_once_get_one_address() {
    let cluster = cluster(2);
    let machines = ["a", "b", "c"].map(|name| cluster.machine(name));
    for round in 0..4 {
        let args = format!("claim=db{round};claimMoves=1");
        let answers = thread::scope(|scope| {
            let threads = [0, 1, 2].map(|at: usize| {
                scope.spawn({
                    let (machine, args) = (&machines[at], &args);
                    move || machine.call("ADD", &format!("vm{round}"), args, &machine.config())
                })
            });
            threads.map(|thread| thread.join().unwrap())
        });
        let given: Vec<&String> = answers.iter().flatten().collect();
        assert!(given.len() == 2 && given[0] == given[1], "two of three hold it: {answers:?}");
        let refused = answers.iter().find(|answer| answer.is_err()).unwrap();
        assert_refused(refused, 103, &["is held by"]);
    }
}

#[test]
fn del_while_the_store_is_away_and_forget_after_it_free_each_address_once() {
    let cluster = cluster(2);
    let (mut a, b) = (cluster.machine("a"), cluster.machine("b"));
    let given: Vec<String> = (0..4).map(|number| a.add(&format!("a{number}")).unwrap()).collect();
    let away = cluster.folder.path().join("away");
    fs::rename(cluster.store(), &away).unwrap();
    (0..3).for_each(|number| a.del(&format!("a{number}")));
    fs::rename(&away, cluster.store()).unwrap();
    b.operator(&["forget", "a", "--fenced", "--force"]);
    a.later_seconds = 4000;
    let mut all = vec![given[3].clone(), a.add("new").unwrap()];
    all.extend(b.fill().0);
    all.extend(a.fill_as("more").0);
    assert_distinct(all.iter());
    assert_eq!(all.len(), 29, "{all:?}");
}
