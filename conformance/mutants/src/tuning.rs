//! The honest chained plugin: sets the MTU of the container's interface and sysctls below `net`, as the reference's
//! `tuning` does with the same keys. What it sets ends with the container.

use interface::{check::differs, failed, pod::open_kernel, pod::open_netns};
use netops::link::{self, Settings, Target};
use netops::sysctl::{self, Key};
use serde::Deserialize;
use skel::cni_spec::{AddResult, CniError, ConfObject, FromConf};
use skel::{AddRequest, CheckRequest, DelRequest, GcRequest, NetnsPath, Plugin, StatusRequest};
use std::collections::BTreeMap;

pub(crate) struct Tuning;

#[derive(Deserialize, Default)]
#[serde(default)]
pub(crate) struct Conf {
    mtu: Option<u32>,
    sysctl: BTreeMap<String, String>,
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let conf: Self = object.decode()?;
        conf.keys()?;
        Ok(conf)
    }
}

impl Conf {
    fn keys(&self) -> Result<Vec<(Key, &String)>, CniError> {
        let key = |(name, value)| {
            let name: &String = name;
            let refused = || CniError::invalid_key("sysctl", name, "expected a name that begins with net.");
            let parts: Vec<_> = name.strip_prefix("net.").ok_or_else(refused)?.split('.').collect();
            Ok((Key::new(&parts).map_err(failed)?, value))
        };
        self.sysctl.iter().map(key).collect()
    }
}

/// Does something with each sysctl, inside the container.
fn in_container(
    netns: &NetnsPath,
    conf: &Conf,
    each: impl Fn(&Key, &str) -> Result<(), CniError> + Sync,
) -> Result<(), CniError> {
    let keys = conf.keys()?;
    let all = || keys.iter().try_for_each(|(key, value)| each(key, value));
    sysctl::in_netns(&open_netns(netns)?, all).map_err(failed)?
}

impl Plugin for Tuning {
    const NAME: &'static str = "tuning";
    type Conf = Conf;
    type Removal = ();

    async fn add(request: &AddRequest<Conf>) -> Result<AddResult, CniError> {
        let conf = &request.conf.own;
        let result = request.conf.get_prev_result()?;
        if conf.mtu.is_some() {
            let settings = Settings { mtu_bytes: conf.mtu, ..Settings::default() };
            let set = link::set(&Target::named(request.attachment.ifname.as_str()), &settings);
            open_kernel(&request.netns)?.run(set).map_err(failed)?;
        }
        in_container(&request.netns, conf, |key, value| sysctl::write(key, value).map_err(failed))?;
        Ok(result)
    }

    async fn check(request: &CheckRequest<Conf>) -> Result<(), CniError> {
        let conf = &request.conf.own;
        request.conf.get_prev_result()?;
        let net = open_kernel(&request.netns)?;
        let link = link::get(&net, &Target::named(request.attachment.ifname.as_str())).map_err(failed)?;
        if conf.mtu.is_some_and(|mtu| mtu != link.mtu_bytes) {
            return Err(differs(format!("link {}", link.name), format!("its MTU is {}", link.mtu_bytes)));
        }
        in_container(&request.netns, conf, |key, value| match sysctl::read(key).map_err(failed)? {
            read if read == value => Ok(()),
            read => Err(differs(key, format!("it is {read}"))),
        })
    }

    async fn del(_: &DelRequest<()>) -> Result<(), CniError> {
        Ok(())
    }

    async fn gc(_: &GcRequest<()>) -> Result<(), CniError> {
        Ok(())
    }

    async fn status(_: &StatusRequest<Conf>) -> Result<(), CniError> {
        Ok(())
    }
}
