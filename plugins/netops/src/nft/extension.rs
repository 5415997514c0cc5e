//! iptables' extensions: the kernel's matches and targets that nf_tables rules may have, too (`nft_compat`).

use std::fmt;

use super::wire::{Attrs, Writer, c_text};

/// A match or a target of iptables, with the structure it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extension {
    /// Its name, `comment`.
    pub name: String,
    /// Which of its structures follows.
    pub revision: u32,
    /// The kernel's `struct xt_*`, in the machine's byte order.
    pub info: Vec<u8>,
}

/// What an extension does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtensionKind {
    /// Looks at a packet.
    Match = 0,
    /// Does something to it.
    Target = 1,
}

impl Extension {
    /// One with this structure, filled up as the kernel wants it: to a multiple of eight bytes (`XT_ALIGN`).
    #[must_use]
    pub fn new(name: &str, revision: u32, mut info: Vec<u8>) -> Self {
        info.resize(info.len().next_multiple_of(8), 0);
        Self { name: name.to_owned(), revision, info }
    }

    /// The text at the start of its structure, up to the first NUL.
    #[must_use]
    pub fn text(&self) -> String {
        c_text(&self.info)
    }

    // enum nft_match_attributes and nft_target_attributes, which are equal.
    pub(super) fn encode(&self, w: &mut Writer) {
        w.text(1, &self.name);
        w.be32(2, self.revision);
        w.attr(3, &self.info);
    }

    pub(super) fn parse(data: Attrs<'_>) -> Option<Self> {
        Some(Self { name: data.text(1)?, revision: data.be32(2)?, info: data.get(3)?.to_vec() })
    }
}

impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "name {} rev {}", self.name, self.revision)
    }
}
