//! The requests of the verbs: names parsed, config checked, nothing optional that the specification requires.

use crate::call::Call;
use crate::delegate::Delegate;
use crate::netns::NetnsPath;
use cni_spec::gc::Sweep;
use cni_spec::{Attachment, CniError, NetConf};
use std::collections::BTreeSet;

/// Declares a request with `conf` and `raw`, and its way to the IPAM plugin.
macro_rules! request {
    ($(#[$doc:meta])* $Name:ident { $($(#[$field_doc:meta])* $field:ident: $Type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone)]
        #[non_exhaustive]
        pub struct $Name {
            $($(#[$field_doc])* pub $field: $Type,)*
            /// The network config.
            pub conf: NetConf,
            /// The call as it came.
            pub raw: Call,
        }

        impl $Name {
            /// The network's address plugin, if it has one.
            #[must_use]
            pub fn ipam(&self) -> Option<Delegate<'_>> {
                self.raw.ipam(&self.conf)
            }
        }
    };
}

request! {
    /// ADD.
    AddRequest {
        /// The attachment to make.
        attachment: Attachment,
        /// The container's namespace, which is not the plugin's own.
        netns: NetnsPath,
    }
}
request! {
    /// DEL. Without a namespace, or with one that is gone, everything outside the namespace is removed all the same.
    DelRequest {
        /// The attachment.
        attachment: Attachment,
        /// The container's namespace, if the runtime still has one. Never the plugin's own, which counts as one that is
        /// gone.
        netns: Option<NetnsPath>,
    }
}
request! {
    /// CHECK.
    CheckRequest {
        /// The attachment.
        attachment: Attachment,
        /// The container's namespace.
        netns: NetnsPath,
    }
}
request! {
    /// GC.
    GcRequest {
        /// The attachments that must stay; all others of this network are removed.
        valid: Vec<Attachment>,
        /// The attachments that were on the node when the list of valid ones was made, if the runtime says so: what came
        /// later must stay, too. Attachments in both lists stay.
        seen: Option<BTreeSet<Attachment>>,
    }
}
request! {
    /// STATUS.
    StatusRequest {}
}

impl GcRequest {
    /// The attachments whose objects GC removes, for objects that are found by less than the attachment, or by a hash of it.
    #[must_use]
    pub fn sweep(&self) -> Sweep<&Attachment> {
        Sweep { valid: self.valid.iter().collect(), seen: self.seen.as_ref().map(|seen| seen.iter().collect()) }
    }

    /// Whether GC has to remove what this attachment has on the node: it is not valid, and came before the runtime
    /// examined the node, as far as the runtime says when that was.
    #[must_use]
    pub fn is_stale(&self, attachment: &Attachment) -> bool {
        !self.valid.contains(attachment) && self.seen.as_ref().is_none_or(|seen| seen.contains(attachment))
    }
}

impl DelRequest {
    /// Calls the address plugin to release its addresses, if the network has one.
    ///
    /// # Errors
    /// As [`Call::release`].
    pub async fn release(&self) -> Result<(), CniError> {
        self.raw.release(&self.conf).await
    }
}
