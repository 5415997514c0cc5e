//! `address-file`: addresses of each attachment in `/run/cni-addresses/NETWORK/CONTAINER:IFNAME`, for a name server.

use chained::{AddOrCheck, ChainedPlugin, Collecting, LazySides, Left, Removing, Txn, Undo, differs, failed};
use netops::file;
use skel::cni_spec::{AddResult, Attachment, CniError, Code, NetworkName};
use std::{fs, path::PathBuf};

struct AddressFile;

fn folder(network: &NetworkName) -> PathBuf {
    PathBuf::from("/run/cni-addresses").join(network.as_str())
}
fn path(of: &Attachment) -> PathBuf {
    folder(&of.network).join(format!("{}:{}", of.container_id, of.ifname))
}
fn content(call: &AddOrCheck<'_>) -> String {
    call.attached.ips().map(|ip| format!("{}\n", ip.address.ip())).collect()
}

#[derive(Debug)]
struct Written(PathBuf);
impl Undo for Written {
    fn text(&self) -> String {
        format!("file {} removed", self.0.display())
    }
    fn run(&self, _: &LazySides<'_>) -> Result<(), Left> {
        Ok(file::remove(&self.0)?)
    }
}

impl ChainedPlugin for AddressFile {
    const NAME: &'static str = "address-file";
    type Conf = ();
    type Removal = ();
    async fn add(call: &AddOrCheck<'_>, _: &(), txn: &Txn, _: &mut AddResult) -> Result<(), CniError> {
        let (dir, path) = (folder(&call.attachment.network), path(call.attachment));
        fs::create_dir_all(&dir).map_err(|e| CniError::new(Code::IO, format!("cannot make {}: {e}", dir.display())))?;
        txn.push(Box::new(Written(path.clone()))); // before the change: an ADD that fails in the middle removes it, too
        file::replace(&path, content(call).as_bytes(), 0o644).map_err(failed)
    }
    async fn check(call: &AddOrCheck<'_>, _: &()) -> Result<(), CniError> {
        let path = path(call.attachment);
        let is_so = fs::read_to_string(&path).is_ok_and(|text| text == content(call));
        is_so.then_some(()).ok_or_else(|| differs(path.display(), "it does not have the attachment's addresses"))
    }
    async fn del(removing: &Removing<'_, ()>) -> Vec<CniError> {
        file::remove(&path(removing.attachment)).map_err(failed).err().into_iter().collect()
    }
    async fn gc(collecting: &Collecting<'_, ()>) -> Vec<CniError> {
        let swept = collecting.sweep.by(|of| path(of));
        let found = fs::read_dir(folder(collecting.network)).into_iter().flatten().flatten().map(|entry| entry.path());
        found.filter(|path| swept.has(path)).filter_map(|path| file::remove(&path).map_err(failed).err()).collect()
    }
}
fn main() -> std::process::ExitCode {
    skel::main(const { &chained::entry::<AddressFile>() }, env!("CARGO_PKG_VERSION"))
}
