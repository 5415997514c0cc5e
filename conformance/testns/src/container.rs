//! A container: an ID and a network namespace, in any state a runtime may leave it in.

use std::fs;
use std::path::PathBuf;

use nix::mount::{MntFlags, umount2};

use crate::Namespace;
use crate::must::Must;
use crate::shell_steps::step_of_path;

/// A container of a [`crate::Node`], with a network namespace bound below `/run/netns`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    id: String,
    namespace: Namespace,
    host: Namespace,
}

/// The state of a container's namespace when the runtime calls the plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remains {
    /// The namespace lives.
    Alive,
    /// The namespace's path is gone.
    Gone,
    /// The namespace's path is a plain file, as after a reboot or an unmount.
    PlainFile,
    /// The runtime passes no path any more.
    EmptyPath,
}

impl Remains {
    pub const ALL: [Self; 4] = [Self::Alive, Self::Gone, Self::PlainFile, Self::EmptyPath];
}

/// The container in a runtime's call: ID, namespace and interface name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`; may be empty.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
}

impl Container {
    pub(crate) fn create(id: &str, host: &Namespace, sysctls: &[(&str, &str)]) -> Self {
        let path = PathBuf::from("/run/netns").join(id);
        Self { id: id.to_owned(), namespace: Namespace::create(&path, sysctls), host: host.clone() }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    pub fn attachment(&self) -> Attachment {
        self.attachment_as("eth0")
    }

    pub fn attachment_as(&self, ifname: &str) -> Attachment {
        let netns = self.namespace.path().display().to_string();
        Attachment { container_id: self.id.clone(), netns, ifname: ifname.to_owned() }
    }

    /// Ends the container in the given way and returns the runtime's parameters for it afterwards.
    ///
    /// The kernel removes the namespace itself, and the links in it, a moment later.
    #[track_caller]
    pub fn leave(&self, remains: Remains) -> Attachment {
        let mut attachment = self.attachment();
        match remains {
            Remains::Alive => {}
            Remains::Gone => {
                self.unbind();
                fs::remove_file(self.namespace.path()).must("remove the namespace's path");
                step_of_path(self.namespace.path(), "rm /run/netns/");
            }
            Remains::PlainFile => self.unbind(),
            Remains::EmptyPath => attachment.netns.clear(),
        }
        attachment
    }

    /// As [`Container::leave`] with [`Remains::Gone`], and waits until the kernel has removed its veth pairs with the node:
    /// for tests of what does not count any more once a container has ended.
    #[track_caller]
    pub fn end(&self) {
        let ends = self.ends_on_the_node();
        self.leave(Remains::Gone);
        self.host.wait_for("the veth pairs of an ended namespace to go", |host| {
            !host.links().iter().any(|link| ends.contains(&(link.index, link.peer)))
        });
    }

    /// Index, and index of the peer, of the node's ends of the container's veth pairs.
    fn ends_on_the_node(&self) -> Vec<(u32, Option<u32>)> {
        let inside = self.namespace.links();
        let pairs: Vec<_> = inside.iter().filter_map(|link| Some((link.peer?, Some(link.index)))).collect();
        let links = self.host.links().into_iter().filter(|link| link.kind == "veth");
        links.map(|link| (link.index, link.peer)).filter(|end| pairs.contains(end)).collect()
    }

    #[track_caller]
    fn unbind(&self) {
        let path = self.namespace.path();
        step_of_path(path, "umount --lazy /run/netns/");
        umount2(path, MntFlags::MNT_DETACH).must(format_args!("unmount {}", path.display()));
    }
}

impl Attachment {
    /// The parameters of verbs without a container: empty.
    pub fn none() -> Self {
        Self { container_id: String::new(), netns: String::new(), ifname: String::new() }
    }
}

impl From<&Container> for Attachment {
    fn from(container: &Container) -> Self {
        container.attachment()
    }
}

impl From<&Attachment> for Attachment {
    fn from(attachment: &Attachment) -> Self {
        attachment.clone()
    }
}
