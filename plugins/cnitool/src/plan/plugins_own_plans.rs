//! The plugins that say what they would do, by name.

use chained::ChainedPlugin;
use cni_plugins::entry;
use cni_plugins::host_local::{self, HostLocal};
use cni_plugins::static_ipam::{self, Static};
use cni_spec::{AddResult, CniError, PluginType};
use interface::InterfacePlugin;
use interface::plugin::asked_form;
use interface::preview::{Lease, Preview, preview};
use skel::{Call, Entry, Plugin, add_request};

/// Whether the executable of an address plugin is of this suite. The error: there is none.
pub(crate) type IsOurs<'a> = &'a dyn Fn(&PluginType) -> Result<bool, CniError>;

/// What ADD of a plugin would do by this call; `None` where the plugin does not say.
pub(crate) type Foresee = fn(&Call, IsOurs<'_>) -> Result<Option<Preview>, CniError>;

macro_rules! table {
    ($($kind:ident $plugin:path, $folder:literal;)*) => {
        const ALL: &[(&str, Option<Foresee>)] = &[$((entry::$kind::<$plugin>().name, $kind::<$plugin>())),*];
    };
}

cni_plugins::plugins!(table);

/// The plugin of this name, if it says what it would do.
pub(crate) fn find(name: &str) -> Option<Foresee> {
    ALL.iter().find(|(found, _)| *found == on_node::plugin_of(name)).and_then(|(_, foresee)| *foresee)
}

const fn interface<P: InterfacePlugin>() -> Option<Foresee> {
    Some(|call, is_ours| {
        if let Some(chained) = asked_form::<P>(call)? {
            return alone(&chained, call);
        }
        let (request, keys) = add_request(&entry::interface::<P>(), call)?;
        let ipam = request.conf.ipam.as_ref();
        preview::<P>(&request, &keys, &mut || lease(call, ipam, is_ours)).map(Some)
    })
}

const fn chained<P: ChainedPlugin>() -> Option<Foresee> {
    Some(|call, _| alone(&entry::chained::<P>(), call))
}

const fn loopback<P: Plugin>() -> Option<Foresee> {
    Some(|call, _| alone(&entry::loopback::<P>(), call))
}

fn alone(plugin: &Entry, call: &Call) -> Result<Option<Preview>, CniError> {
    plugin.preview.map_or(Ok(None), |preview| preview(call))
}

/// Address plugins are asked by the plugin that delegates to them: see [`lease`].
#[expect(clippy::extra_unused_type_parameters, reason = "called as the functions of the other kinds are")]
const fn address<P: Plugin>() -> Option<Foresee> {
    None
}

fn known(lease: AddResult) -> Lease {
    Lease::Known(Box::new(lease))
}

fn lease(call: &Call, ipam: Option<&PluginType>, is_ours: IsOurs<'_>) -> Result<Lease, CniError> {
    let Some(ipam) = ipam else { return Ok(Lease::None) };
    let is_ours = is_ours(ipam)?;
    match on_node::plugin_of(ipam.as_str()) {
        _ if !is_ours => Ok(Lease::Unknown),
        "host-local" => {
            let (request, keys) = add_request(&entry::address::<HostLocal>(), call)?;
            Ok(host_local::preview(&request, &keys)?.map_or(Lease::Unknown, known))
        }
        "static" => {
            let (request, keys) = add_request(&entry::address::<Static>(), call)?;
            static_ipam::preview(&request, &keys).map(known)
        }
        _ => Ok(Lease::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::Role;

    #[test]
    fn each_plugin_that_a_list_can_have_says_what_it_would_do() {
        let silent =
            |known: &&crate::validate::KnownPlugin| !matches!(known.role, Role::Address) && find(known.name).is_none();
        assert_eq!(
            crate::keys::ALL.iter().filter(silent).map(|known| known.name).collect::<Vec<_>>(),
            Vec::<&str>::new()
        );
    }
}
