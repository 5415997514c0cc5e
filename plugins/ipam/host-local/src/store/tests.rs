mod index;

use super::*;
use crate::conf::{Conf, Removal};
use crate::{add, gc, status};

use cni_spec::{Attachment, CniError, Code, ConfObject, FromConf};

/// A data folder, and the additional keys in a test's `ipam`.
struct Node {
    data: tempfile::TempDir,
    ipam: String,
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn owner(id: &str) -> Attachment {
    Attachment::parse("n", id, "eth0").unwrap()
}

impl Node {
    fn new(ipam: &str) -> Self {
        Self { data: tempfile::tempdir().unwrap(), ipam: ipam.to_owned() }
    }

    /// In memory where the machine has such a folder, for the sake of many files.
    fn large(ipam: &str) -> Self {
        let data = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Self { data, ipam: ipam.to_owned() }
    }

    fn removal(&self) -> Removal {
        let Conf { place, cool_down, .. } = self.conf();
        Removal { place, cool_down }
    }

    fn conf(&self) -> Conf {
        let data = self.data.path().display();
        let text = format!(r#"{{"cniVersion":"1.1.0","name":"net","ipam":{{"dataDir":"{data}",{}}}}}"#, self.ipam);
        let mut conf = Conf::from_conf(&ConfObject::parse(text.as_bytes()).unwrap()).unwrap();
        conf.place.deadline = Duration::from_secs(5);
        conf.place.private_files = self.data.path().join("notes");
        conf
    }

    fn path(&self, name: &str) -> PathBuf {
        self.data.path().join("net").join(name)
    }

    /// A note of the plugin about the store.
    fn note(&self, name: &str) -> PathBuf {
        self.store().private_files().path(name)
    }

    fn write(&self, name: &str, content: &str) {
        fs::create_dir_all(self.path("")).unwrap();
        fs::write(self.path(name), content).unwrap();
    }

    fn add(&self, id: &str) -> Result<String, CniError> {
        self.add_with(id, &self.conf())
    }

    fn add_with(&self, id: &str, conf: &Conf) -> Result<String, CniError> {
        let result = block_on(add::add(conf, &owner(id)))?;
        Ok(result.ips.iter().map(|ip| ip.address.ip().to_string()).collect::<Vec<_>>().join(" "))
    }

    fn del(&self, id: &str) {
        block_on(crate::del(&self.removal(), &owner(id))).unwrap();
    }

    fn check(&self, id: &str) -> Result<(), CniError> {
        block_on(crate::check(&self.conf(), &owner(id)))
    }

    /// STATUS by the letter, where a full range is an error.
    fn status(&self) -> Result<(), CniError> {
        block_on(status::status(&Conf { report_exhausted: true, ..self.conf() }))
    }

    fn store(&self) -> Store {
        block_on(Store::create(&self.conf().place)).unwrap()
    }

    fn reserved(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| Address::from_file_name(name).is_some())
            .collect();
        names.sort();
        names
    }
}

const SIX: &str = r#""subnet":"10.0.0.0/29""#; // hands out .2 to .6

#[test]
fn reservations_behind_our_back_are_seen() {
    let node = Node::new(SIX);
    node.add("c1").unwrap();
    node.add("c2").unwrap();
    node.write("10.0.0.4", "g1\r\neth0");
    assert_eq!(node.add("c3").unwrap(), "10.0.0.5");
    node.write("10.0.0.6", "g1\r\neth0");
    assert_eq!(node.add("g1").unwrap_err().code, Code::EXISTS);
    node.check("g1").unwrap();
    node.write("10.0.0.3", "g1\r\neth0"); // in place: c2's file now names g1
    node.check("g1").unwrap();
    assert!(node.check("c2").is_err());
    fs::remove_file(node.path("10.0.0.2")).unwrap();
    assert_eq!(node.check("c1").unwrap_err().msg, "host-local: Failed to find address added by container c1");
    node.del("g1");
    assert_eq!(node.reserved(), ["10.0.0.5"]);
}

#[test]
fn reservations_of_the_older_form_are_the_containers() {
    let node = Node::new(SIX);
    node.write("10.0.0.2", "old");
    node.write("10.0.0.3", "old2\n");
    node.check("old").unwrap();
    assert_eq!(node.add("old").unwrap_err().code, Code::EXISTS);
    let valid = [Attachment::parse("n", "old", "eth7").unwrap(), owner("old2")];
    block_on(gc::gc(&node.removal(), &(&valid.each_ref()).into())).unwrap();
    assert_eq!(node.reserved(), ["10.0.0.2", "10.0.0.3"]);
    node.del("old");
    node.del("old2");
    assert_eq!(node.reserved(), [""; 0]);
}

#[test]
fn what_this_plugin_once_left_beside_the_reservations_goes() {
    let node = Node::new(SIX);
    for name in [".index", ".released", ".reservation", "notes.txt"] {
        node.write(name, "");
    }
    node.check("c1").unwrap_err();
    let names: Vec<_> = fs::read_dir(node.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "the lock and what is an operator's: {names:?}");
}

/// Two mount namespaces may each have a `/run`, and share one store: an index is trusted only while no other was
/// written.
#[test]
fn each_keeper_of_notes_sees_the_changes_of_the_other() {
    let node = Node::new(r#""subnet":"10.0.0.0/24""#);
    let mut elsewhere = node.conf();
    elsewhere.place.private_files = node.data.path().join("elsewhere");
    for number in (2..40).step_by(2) {
        assert_eq!(node.add(&format!("a{number}")).unwrap(), format!("10.0.0.{number}"));
        assert_eq!(node.add_with(&format!("b{number}"), &elsewhere).unwrap(), format!("10.0.0.{}", number + 1));
        assert_eq!(node.add(&format!("b{number}")).unwrap_err().code, Code::EXISTS);
    }
}

#[test]
fn excluded_stretches_are_passed() {
    let node = Node::new(r#""subnet":"fd00::/64","exclude":["fd00::2-fd00::ffff","fd00::1:1","fd00::1:2/127"]"#);
    assert_eq!(node.add("a").unwrap(), "fd00::1:0");
    assert_eq!(node.add("b").unwrap(), "fd00::1:4");
    let mut conf = node.conf();
    conf.requested = vec![Address::from_file_name("fd00::1:1").unwrap()];
    let error = node.add_with("c", &conf).unwrap_err();
    assert_eq!(error.msg, "failed to allocate for range 0: requested ip fd00::1:1 is excluded");
}

#[test]
fn a_released_address_cools_down_and_its_owner_gets_it_back() {
    let node = Node::new(r#""subnet":"10.0.0.0/30","releaseCooldownSeconds":3600"#);
    assert_eq!(node.add("a").unwrap(), "10.0.0.2");
    node.del("a");
    let mut patient = Conf { yields: false, ..node.conf() };
    for id in ["a", "b"] {
        let error = node.add_with(id, &patient).unwrap_err();
        assert_eq!(error.code, Code::TRY_AGAIN);
        assert!(error.details.contains("cool down"), "{error}");
    }
    node.status().unwrap();
    patient.reuse_address = true;
    assert_eq!(node.add_with("b", &patient).unwrap_err().code, Code::TRY_AGAIN);
    assert_eq!(node.add_with("a", &patient).unwrap(), "10.0.0.2");
    node.del("a");
    fs::write(node.note("released"), "1 10.0.0.2 a eth0\n").unwrap(); // long ago
    assert_eq!(node.add("b").unwrap(), "10.0.0.2");
}

#[test]
fn a_container_that_keeps_its_address_gets_no_other() {
    let node = Node::new(&format!(r#"{SIX},"reuseAddress":true"#));
    node.add("a").unwrap();
    let mut conf = node.conf();
    conf.requested = vec![Address::from_file_name("10.0.0.5").unwrap()];
    assert_eq!(node.add_with("a", &conf).unwrap_err().code, Code::EXISTS);
}

fn age(path: &Path) {
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    File::open(path).unwrap().set_times(fs::FileTimes::new().set_modified(long_ago)).unwrap();
}

#[test]
fn status_counts_reservations_that_add_would_reclaim_as_free() {
    for key in ["never", "exhausted", "always"] {
        let node = Node::new(&format!(r#""subnet":"10.0.0.0/30","reclaimEarlierBoot":"{key}""#));
        node.write("10.0.0.2", "old\r\neth0");
        age(&node.path("10.0.0.2"));
        assert_eq!(node.status().is_ok(), key != "never", "{key}");
    }
}

/// A clock that was years behind when the container was started, and was corrected since.
#[test]
fn our_own_reservations_of_this_boot_are_never_reclaimed() {
    let node = Node::new(&format!(r#"{SIX},"reclaimEarlierBoot":"exhausted""#));
    for id in ["a", "b", "c", "d", "e"] {
        node.add(id).unwrap();
    }
    for name in node.reserved() {
        age(&node.path(&name));
    }
    for name in ["odd", "odder"] {
        fs::write(node.path(name), "").unwrap(); // breaks the seal: the index is built anew
        node.check("a").unwrap();
    }
    assert_eq!(node.add("f").unwrap_err().code, Code::NO_ADDRESS);
    assert_eq!(node.reserved().len(), 5);
}

/// Another process makes and deletes files without the lock while the folder is read: the index built from that is not
/// kept.
#[test]
fn an_index_is_not_kept_if_the_folder_changed_while_it_was_read() {
    let node = Node::new(r#""subnet":"10.0.0.0/16""#);
    for number in 1..200 {
        node.write(&format!("10.0.1.{number}"), "x\r\neth0");
    }
    let folder = node.path("");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                fs::write(folder.join("10.0.200.1"), "y\r\neth0").unwrap();
                fs::remove_file(folder.join("10.0.200.1")).unwrap();
            }
        });
        // Until a change falls into a reading; the other thread may get no time for a while.
        let met_a_change = (0..10_000).any(|_| {
            let mut store = node.store();
            store.scan().unwrap();
            let suspect = store.suspect;
            store.finish();
            suspect
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(met_a_change);
    });
    assert!(node.store().scanned);
    node.check("x").unwrap();
    assert!(!node.store().scanned);
}
