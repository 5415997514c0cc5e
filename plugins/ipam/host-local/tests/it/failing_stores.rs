//! Stores that cannot be written to: clear errors, and nothing half made.

use std::fs;

use testns::write_executable;

use crate::call::{Net, OURS};

const KEYS: &str = r#""ranges":[[{"subnet":"10.0.0.0/29"}],[{"subnet":"fd00::/64"}]]"#;

/// A limit of a file's size is a failed write, not the end of the process.
#[test]
fn a_limit_of_file_sizes() {
    let data = tempfile::tempdir().unwrap();
    let limited = data.path().join("limited");
    write_executable(&limited, format!("#!/bin/sh\nulimit -f 0\nexec {}\n", *OURS)).unwrap();
    let net = Net::new(data.path(), KEYS);
    let error = net.call(limited.to_str().unwrap(), "ADD", "a", "").unwrap_err();
    assert_eq!(error, "failed to allocate for range 0: cannot create reservation 10.0.0.2: file too large");
    assert!(net.reservations().is_empty());
    net.call(limited.to_str().unwrap(), "DEL", "a", "").unwrap();
    net.call(&OURS, "ADD", "a", "").unwrap();
}

/// The lock is a file that only root can open: no link to another, and nothing that is no file.
#[test]
fn a_lock_that_is_no_file_is_refused_and_others_cannot_open_it() {
    use std::os::unix::fs::PermissionsExt;
    let data = tempfile::tempdir().unwrap();
    let net = Net::new(data.path(), KEYS);
    let lock = net.folder().join("lock");
    fs::create_dir(net.folder()).unwrap();
    nix::unistd::mkfifo(&lock, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let error = net.call(&OURS, "ADD", "a", "").unwrap_err();
    assert_eq!(error, format!("cannot open lock {}: it is no regular file", lock.display()));
    fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &lock).unwrap();
    net.call(&OURS, "ADD", "a", "").unwrap_err();
    assert!(net.reservations().is_empty());
    fs::remove_file(&lock).unwrap();
    fs::write(&lock, "").unwrap();
    fs::set_permissions(&lock, PermissionsExt::from_mode(0o644)).unwrap();
    net.call(&OURS, "ADD", "a", "").unwrap();
    assert_eq!(fs::metadata(&lock).unwrap().permissions().mode() & 0o777, 0o640);
}

/// Without /proc boots cannot be distinguished, and unnamed files get no names: addresses are leased all the same,
/// and none is taken for one of an earlier boot.
#[test]
fn without_proc_addresses_are_leased() {
    let data = tempfile::tempdir().unwrap();
    let without_proc = data.path().join("without-proc");
    let script = format!(
        "#!/bin/sh\nexec /usr/bin/unshare --mount /bin/sh -c '/bin/mount -t tmpfs none /proc && exec {}'\n",
        *OURS
    );
    write_executable(&without_proc, script).unwrap();
    let without_proc = without_proc.to_str().unwrap();
    let net = Net::new(&data.path().join("data"), &format!(r#"{KEYS},"reclaimEarlierBoot":"always""#));
    fs::create_dir_all(net.folder()).unwrap();
    let old = fs::File::create(net.folder().join("10.0.0.2")).unwrap();
    std::io::Write::write_all(&mut &old, b"old\r\neth0").unwrap();
    old.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let first = net.call(without_proc, "ADD", "a", "").unwrap();
    assert!(first[0].contains("10.0.0.3"), "{first:?}");
    net.call(without_proc, "CHECK", "a", "").unwrap();
    assert!(net.call(without_proc, "ADD", "b", "").unwrap()[0].contains("10.0.0.4"));
    assert_eq!(net.others(), ["last_reserved_ip.0", "last_reserved_ip.1", "lock"]);
    net.call(without_proc, "DEL", "a", "").unwrap();
    // Where there is one again, what had been done without is seen.
    let last = net.call(&OURS, "ADD", "c", "").unwrap();
    assert!(last[0].contains("10.0.0.5"), "{last:?}");
    let held: Vec<String> = net.reservations().into_values().collect();
    assert_eq!(held, ["b\r\neth0", "c\r\neth0", "b\r\neth0", "c\r\neth0"]);
}
