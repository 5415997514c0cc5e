//! The undo of ADD for one address.

use crate::accept::{self, Accepted};
use crate::backend::with_table;
use crate::conf::{Backend, Conf};
use crate::pod_ports::{PodPorts, names};
use crate::port_holder::Replaced;
use crate::route_localnet::{self, Enabled};
use crate::{forget_flows, nftables, open, put_back};
use chained::{all, failed};
use cni_filter::iptables::{Before, TableName};
use cni_spec::{Attachment, CniError};
use ipnetwork::IpNetwork;
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

/// Removes what ADD made for one address, and puts back what it replaced.
#[derive(Debug)]
pub(crate) struct Unmap {
    pub(crate) attachment: Attachment,
    pub(crate) conf: Conf,
    pub(crate) address: IpNetwork,
    pub(crate) replaced: Replaced,
    pub(crate) accepted: Accepted,
    pub(crate) enabled: Rc<RefCell<Enabled>>,
    pub(crate) search_path: String,
}

impl fmt::Display for Unmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let had_none = self.replaced.borrow().as_ref().is_some_and(Before::is_empty);
        let how = if had_none { "removed" } else { "as before" };
        write!(f, "forwarded ports of {} {how}", self.address.ip())
    }
}

impl Unmap {
    fn put_back(&self) -> Result<(), CniError> {
        let Self { attachment, conf, address, replaced, accepted, search_path, .. } = self;
        let pod = PodPorts::new(attachment, conf, *address);
        let mut filter = open(search_path)?;
        let (replaced, accepted) = (replaced.borrow(), accepted.borrow());
        // Without it ADD failed before it changed anything.
        let Some(replaced) = &*replaced else { return Ok(()) };
        let forwarded = with_table(&mut filter, &pod, &mut |table, backend| match backend {
            Backend::Iptables => put_back::put_back_chain(table, &pod, replaced),
            Backend::Nftables => nftables::put_back(table, &pod, replaced),
        })?;
        if let Some(accepted) = &*accepted
            && let Some(mut table) = filter.iptables(pod.family, TableName::Filter).map_err(failed)?
        {
            accept::put_back(&mut table, pod.names, accepted).map_err(failed)?;
        }
        forget_flows(&forwarded, &mut |flow| forwarded.iter().any(|to| to.answers(flow)));
        Ok(())
    }
}

impl chained::Undo for Unmap {
    fn run(&self, _sides: &chained::LazySides<'_>) -> Result<(), chained::Left> {
        let Self { attachment, enabled, search_path, .. } = self;
        let (rules, key) = (self.put_back(), names(attachment).key());
        let closed = route_localnet::undo(&enabled.borrow(), &key, search_path).map_err(failed);
        Ok(all([rules, closed])?)
    }
}
