//! A runtime on a node, `libcni` in this process, which runs chains of plugins.

use crate::prelude::*;
pub(crate) use conformance::wait;
use libcni::cni_spec::SpecVersion;
use libcni::{CapabilityArgs, NetworkConf, Runtime};

/// A container's attachment to a network.
pub(crate) struct Chain<'a> {
    pub(crate) node: &'a Node,
    pub(crate) network: &'a Value,
    pub(crate) capabilities: &'a Value,
    pub(crate) attachment: Attachment,
}

impl Chain<'_> {
    /// ADD; the last plugin's result.
    pub(crate) fn add(&self) -> Result<Value, String> {
        let (network, attachment) = self.for_libcni();
        let result = wait(self.libcni().add(&network, &attachment)).map_err(|error| error.to_string())?;
        let version = SpecVersion::find(self.network["cniVersion"].as_str().expect("a version"));
        Ok(result.to_value(version.expect("a released version")).expect("the version can express it"))
    }

    /// CHECK, with the result of ADD, which is in the runtime's cache.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (network, attachment) = self.for_libcni();
        wait(self.libcni().check(&network, &attachment)).map_err(|error| error.to_string())
    }

    pub(crate) fn del(&self) -> Result<(), String> {
        let (network, attachment) = self.for_libcni();
        wait(self.libcni().del(&network, &attachment)).map_err(|error| error.to_string())
    }

    fn libcni(&self) -> Runtime {
        Runtime::builder().plugin_dirs([self.node.bin_dir()]).build()
    }

    fn for_libcni(&self) -> (NetworkConf, libcni::RuntimeConf) {
        let network = NetworkConf::parse(self.network.to_string().as_bytes()).expect("a network");
        let Attachment { container_id, netns, ifname } = &self.attachment;
        let mut attachment = libcni::RuntimeConf::new(container_id, ifname).expect("names").netns(netns);
        attachment.capability_args = CapabilityArgs::parse(&self.capabilities.to_string()).expect("arguments");
        (network, attachment)
    }
}
