//! Forwarding, which ADD turns on for the whole node, without taking the node's own network from it: once it forwards IPv6, the
//! kernel takes router advertisements only on links whose `accept_ra` is 2, and forgets the routes that it has by other links'.

use cni_spec::CniError;
use netops::sysctl::{self, Key};
use netops::{Family, Kernel, link};

use crate::check::forwarding;
use crate::failed;

/// Has the node forward packets of a family. What routers advertise on its links counts as before.
pub(crate) fn turn_on(host: &Kernel, family: Family) -> Result<(), CniError> {
    let set = |keys: &[Key], value| keys.iter().try_for_each(|key| sysctl::ensure(key, value));
    let kept = to_keep(host, family)?;
    let done = set(&kept, "2").and_then(|()| sysctl::forward(family));
    if done.is_err() {
        set(&kept, "1").map_err(failed)?;
    }
    done.map_err(failed)?;
    for key in &kept {
        tracing::warn!(
            "{key} is 2 now, so that the node, which forwards IPv6 from now on, keeps its routes by router advertisements"
        );
    }
    Ok(())
}

/// The `accept_ra` of links that lose what routers advertise when the node begins to forward packets of a family.
pub(crate) fn to_keep(host: &Kernel, family: Family) -> Result<Vec<Key>, CniError> {
    match family {
        Family::V6 if forwarding(family)?.1.as_deref() == Some("0") => of_hosts(host),
        Family::V4 | Family::V6 => Ok(Vec::new()),
    }
}

fn of_hosts(host: &Kernel) -> Result<Vec<Key>, CniError> {
    let links = link::list_hosts_only(host).map_err(failed)?;
    links.iter().map(|link| Key::of_link("ipv6", &link.name, "accept_ra").map_err(failed)).collect()
}

/// Says in the log, for STATUS, on which links the node loses what routers advertise, or would without ADD.
/// Errors: as the kernel refuses.
pub(crate) fn warn_of_lost() -> Result<(), CniError> {
    let has_lost = matches!(forwarding(Family::V6)?, (_, Some(value)) if value != "0");
    for key in of_hosts(&Kernel::host().map_err(failed)?)? {
        match has_lost {
            true => tracing::warn!(
                "{key} is 1, so the node, which forwards IPv6, takes no router advertisements there: set 2"
            ),
            false => tracing::warn!(
                "{key} is 1: the first ADD sets 2, so that the node keeps its routes by router advertisements"
            ),
        }
    }
    Ok(())
}
