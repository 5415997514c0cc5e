//! The choice of the backend: iptables' tables or portmap's own in nf_tables.

use chained::failed;
use cni_filter::Filter;
use cni_filter::iptables::{Table, TableName};
use cni_spec::CniError;
use netops::OpError;
use netops::nft::Family;

use crate::conf::{Backend, Conf};
use crate::nftables;
use crate::pod_ports::PodPorts;

/// The table of the config's backend: of iptables if none is named, unless the node can only have rules of nf_tables.
pub(crate) fn choose<'a>(
    filter: &'a mut Filter,
    conf: &Conf,
    family: Family,
) -> Result<(Table<'a>, Backend), CniError> {
    if conf.backend == Some(Backend::Nftables) {
        return Ok((filter.native(nftables::table(family)), Backend::Nftables));
    }
    let is_for_programs = conf.conditions(family).need_programs();
    let found = match is_for_programs {
        true => filter.place_of_programs(family, TableName::Nat),
        false => filter.place(family, TableName::Nat),
    };
    let missing = || {
        let object = format!("backend iptables ({family})");
        let why = match is_for_programs {
            true => "its programs, which alone know the words of the conditions, are not found; install iptables",
            false => {
                "the kernel has no extensions of iptables for nf_tables, and legacy iptables is not installed; load \
                      nft_compat, xt_comment and xt_MASQUERADE, or use backend nftables"
            }
        };
        failed(OpError::state("use", object, why))
    };
    match (found.map_err(failed)?, conf.backend) {
        (Some(place), _) => Ok((filter.table(place), Backend::Iptables)),
        (None, Some(_)) => Err(missing()),
        (None, None) => Ok((filter.native_instead(nftables::table(family)), Backend::Nftables)),
    }
}

/// Does the work with the table of the backend that the config and the node choose.
pub(crate) fn with_table<T>(
    filter: &mut Filter,
    pod: &PodPorts<'_>,
    work: &mut dyn FnMut(&mut Table<'_>, Backend) -> netops::error::Result<T>,
) -> Result<T, CniError> {
    let (mut table, backend) = choose(filter, pod.conf, pod.family)?;
    work(&mut table, backend).map_err(|error| unusable_conditions(pod, &error).unwrap_or_else(|| failed(error)))
}

/// An error of the config: iptables' programs alone know whether they can use the words of the conditions.
fn unusable_conditions(pod: &PodPorts<'_>, error: &OpError) -> Option<CniError> {
    let words = &pod.conf.conditions(pod.family).rule().words;
    let says = cni_filter::iptables::unusable_input(error).filter(|_| !words.is_empty())?;
    let key = if pod.family == Family::Ip6 { "conditionsV6" } else { "conditionsV4" };
    let why = format!("iptables refuses it: {says}");
    Some(CniError::invalid_key(key, format!("{:?}", words.join(" ")), &why))
}
