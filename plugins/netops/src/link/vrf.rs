//! Links with a routing table for their ports (VRF).

use netlink_packet_route::link::{InfoData, InfoVrf};

/// The settings of a VRF.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vrf {
    /// The routing table of its ports; the kernel refuses 0.
    pub table: u32,
}

impl Vrf {
    pub(super) fn read(options: &[InfoVrf]) -> Self {
        let table = options.iter().find_map(|option| match option {
            InfoVrf::TableId(table) => Some(*table),
            _ => None,
        });
        Self { table: table.unwrap_or_default() }
    }

    pub(super) fn data(&self) -> InfoData {
        InfoData::Vrf(vec![InfoVrf::TableId(self.table)])
    }
}
