//! A tap beside the interface that an earlier plugin made: a virtual machine takes the interface's place. Two filters send what comes in
//! at either link out by the other one, and the result tells the machine's monitor which addresses the guest has.
//!
//! The result has the form that users of tc-redirect-tap read: the tap, and once more with the container's ID as its sandbox and
//! the interface's Ethernet address, as the guest's interface is to be, with the interface's addresses.

use chained::{
    AddOrCheck, ChainedPlugin, DeleteIngress, LazySides, Left, Preview, Removing, Shown, Txn, Undo, all, differs,
    failed,
};
use cni_spec::{AddResult, Attachment, CniArgs, CniError, Code, Interface, Ip, SpecVersion};
use interface::{alias, status};
use netops::error::Result;
use netops::link::{self, Bridge, Kind, Link, LinkName, Place, Settings, Target, tun};
use netops::tc::{self, Qdisc};
use netops::{Errno, Kernel, link_removal};

use crate::conf::Conf;
use crate::step::words;

#[derive(Debug)]
pub struct Redirect;

/// The user and group who may open the tap where nobody is named: root.
const ROOT: u32 = 0;

impl ChainedPlugin for Redirect {
    const NAME: &'static str = "tap";
    /// Older results have no interfaces.
    const VERSIONS: &'static [SpecVersion] = SpecVersion::V0_3_0.and_later();
    type Conf = Conf;
    type Removal = ();

    async fn add(
        call: &AddOrCheck<'_>,
        keys: &Conf,
        txn: &Txn,
        result: &mut AddResult,
    ) -> std::result::Result<(), CniError> {
        let sides = call.sides.open()?;
        let (inside, link) = (&sides.container, call.attached.link(sides)?);
        let wishes = Wishes::of(&call.raw.parse_args()?)?;
        let name = name(inside, keys, &wishes).map_err(failed)?;
        let made = inside.run(tc::add(&link, &Qdisc::Ingress));
        let is_taken = made.as_ref().is_err_and(|error| error.os_errno() == Some(Errno::EEXIST));
        if !is_taken {
            // The answer may be lost.
            txn.push(Box::new(DeleteIngress { link: link.clone(), is_in_container: true, is_new: made.is_ok() }));
        }
        made.map_err(|error| match is_taken {
            true => failed(error)
                .detail("Another process filters what comes in at this link; the tap would take that away."),
            false => failed(error),
        })?;
        let alias = alias::of(call.attachment);
        let tap = tun::Tap {
            name: &name,
            multi_queue: keys.multi_queue,
            owner: Some(wishes.owner.or(keys.owner).unwrap_or(ROOT)),
            group: Some(wishes.group.or(keys.group).unwrap_or(ROOT)),
            master: None,
            mtu_bytes: Some(link.mtu_bytes),
            mac: None,
            alias: Some(&alias),
        };
        let tap = tun::create_tap(Place { netns: &sides.netns, kernel: inside }, &tap).map_err(failed)?;
        txn.push(Box::new(DeleteTap(tap.clone())));
        let up = Settings { up: Some(true), ..Settings::default() };
        let requests = vec![
            tc::add(&tap, &Qdisc::Ingress),
            tc::redirect_all(&tap, &link),
            tc::redirect_all(&link, &tap),
            link::set(&(&tap).into(), &up),
        ];
        inside.run_all(requests).map_err(failed)?;
        tell(result, call, &tap, link.mac.map(|mac| mac.to_string()).unwrap_or_default());
        Ok(())
    }

    fn preview(call: &AddOrCheck<'_>, keys: &Conf, preview: &mut Preview) -> std::result::Result<(), CniError> {
        let name = name(&call.sides.open()?.container, keys, &Wishes::of(&call.raw.parse_args()?)?).map_err(failed)?;
        let entry = call.attached.get_interface()?;
        let (ifname, flag) = (&entry.name, if keys.multi_queue { " multi_queue" } else { "" });
        preview.step(format!("tc qdisc add dev {ifname} ingress"));
        preview.step(format!("ip tuntap add {name} mode tap{flag}"));
        preview.push(Shown::new(format!("ip link set {name} alias {}", alias::of(call.attachment))).uncompared());
        preview.step(format!("tc qdisc add dev {name} ingress"));
        for (from, to) in [(name.as_str(), ifname.as_str()), (ifname.as_str(), name.as_str())] {
            preview
                .step(format!("tc filter add dev {from} parent ffff: matchall action mirred egress redirect dev {to}"));
        }
        preview.step(format!("ip link set {name} up"));
        let tap = Link { name: name.to_string(), mtu_bytes: entry.mtu, ..Link::default() };
        let mac = entry.mac.clone();
        tell(&mut preview.result, call, &tap, mac);
        Ok(())
    }

    async fn check(call: &AddOrCheck<'_>, keys: &Conf) -> std::result::Result<(), CniError> {
        let sides = call.sides.open()?;
        let (inside, link) = (&sides.container, call.attached.link(sides)?);
        let place = inside.place();
        let mut taps = find(inside, call.attachment).map_err(failed)?;
        let Some(tap) = taps.pop() else {
            return Err(differs(format!("the tap beside {} in {place}", link.name), "it is not found"));
        };
        let object = || format!("interface {} in {place}", tap.name);
        let is_told = |entry: &Interface| {
            entry.name == tap.name && tap.mac.is_some_and(|mac| entry.mac.eq_ignore_ascii_case(&mac.to_string()))
        };
        let Kind::Tun(settings) = tap.kind else { return Ok(()) };
        let wishes = Wishes::of(&call.raw.parse_args()?)?;
        let is_other = |wanted: Option<u32>, found: Option<u32>| wanted.is_some() && wanted != found;
        let differences = [
            (is_other(wishes.owner.or(keys.owner), settings.owner), format!("its owner is {}", words(settings.owner))),
            (is_other(wishes.group.or(keys.group), settings.group), format!("its group is {}", words(settings.group))),
            (!tap.up, "it is down".to_owned()),
            (tap.mtu_bytes != link.mtu_bytes, format!("its MTU is {}, not {}", tap.mtu_bytes, link.mtu_bytes)),
            (settings.multi_queue != keys.multi_queue, format!("multiQueue is {}", settings.multi_queue)),
            (!call.attached.result.interfaces.iter().any(is_told), "the result has another one".to_owned()),
        ];
        let settings =
            differences.into_iter().filter(|(differs, _)| *differs).map(|(_, how)| Err(differs(object(), how)));
        let ways = [(&link, &tap), (&tap, &link)].map(|(from, to)| {
            let found = tc::list_redirects(inside, from).map_err(failed)?;
            match found.first().is_some_and(|first| first.to == to.index) {
                true => Ok(()),
                false => {
                    let object = format!("interface {} in {place}", from.name);
                    Err(differs(object, format!("what comes in there does not go to {}", to.name)))
                }
            }
        });
        all(settings.chain(ways).collect::<Vec<_>>())
    }

    async fn del(removing: &Removing<'_, ()>) -> Vec<CniError> {
        let look = || {
            let Some(netns) = removing.find_netns()? else { return Ok(None) };
            let inside = Kernel::in_netns(&netns).map_err(failed)?;
            let taps = find(&inside, removing.attachment).map_err(failed)?;
            Ok(Some((netns, inside, taps)))
        };
        let (netns, inside, taps) = match look() {
            Ok(Some(found)) => found,
            Ok(None) => return Vec::new(),
            Err(error) => return vec![error],
        };
        let freed = removing.find_link(&netns, &inside).and_then(|link| {
            let Some(link) = link else { return Ok(()) };
            separate(&inside, &link, &taps)
        });
        let removed = taps.iter().map(|tap| link_removal::remove_in(&netns, Kernel::in_netns(&netns)?, tap));
        [freed].into_iter().chain(removed).filter_map(|done| done.err().map(failed)).collect()
    }

    fn status(_conf: &Conf, _search_path: &str) -> std::result::Result<(), CniError> {
        status::try_out_tap()?;
        status::try_out("redirect", |net| {
            let [one, other] = ["trial1", "trial2"].map(|name| {
                link::run_and_get(net, vec![link::create_bridge(name, &Bridge::default())], &Target::named(name))
            });
            let (one, other) = (one?, other?);
            net.run_all(vec![tc::add(&one, &Qdisc::Ingress), tc::redirect_all(&one, &other)])
        })
    }
}

/// What `CNI_ARGS` ask for, by the names that callers of tc-redirect-tap use.
#[derive(Debug, Default)]
struct Wishes {
    name: Option<LinkName>,
    owner: Option<u32>,
    group: Option<u32>,
}

impl Wishes {
    /// Errors: code 4: a value is no name of a link, or no number.
    fn of(args: &CniArgs) -> std::result::Result<Self, CniError> {
        let refused = |key: &str, value: &str, why: &str| {
            CniError::new(Code::INVALID_ENVIRONMENT, format!("cannot use CNI_ARGS {key} = {value:?}: {why}"))
        };
        let number = |key: &str| {
            let number =
                args.find(key).map(|value| value.parse().map_err(|_text| refused(key, value, "it is no number")));
            number.transpose()
        };
        let name =
            |value| LinkName::parse(value).map_err(|error| refused("TC_REDIRECT_TAP_NAME", value, &error.to_string()));
        Ok(Self {
            name: args.find("TC_REDIRECT_TAP_NAME").map(name).transpose()?,
            owner: number("TC_REDIRECT_TAP_UID")?,
            group: number("TC_REDIRECT_TAP_GID")?,
        })
    }
}

/// The name of a new tap: the one that is asked for, else the first of `tap0`, `tap1` and so on that no link has.
fn name(inside: &Kernel, conf: &Conf, wishes: &Wishes) -> Result<LinkName> {
    if let Some(name) = wishes.name.clone().or_else(|| conf.tap_name.clone()) {
        return Ok(name);
    }
    let taken = link::list_of_container(inside)?;
    let is_free = |name: &LinkName| !taken.iter().any(|link| link.name == name.as_str());
    let names = (0..=taken.len()).filter_map(|number| LinkName::parse(&format!("tap{number}")).ok());
    names
        .into_iter()
        .find(is_free)
        .ok_or_else(|| netops::OpError::state("create", "tap", "the container has links of all names".to_owned()))
}

/// The taps of the attachment in its container: one, unless calls were killed.
fn find(inside: &Kernel, attachment: &Attachment) -> Result<Vec<Link>> {
    let alias = alias::of(attachment);
    let is_own = |link: &Link| matches!(link.kind, Kind::Tun(tun) if tun.is_tap) && link.alias.as_ref() == Some(&alias);
    Ok(link::list_of_container(inside)?.into_iter().filter(is_own).collect())
}

/// Takes the filters to these taps from the interface, and the qdisc that is of no use without.
fn separate(inside: &Kernel, link: &Link, taps: &[Link]) -> Result<()> {
    let redirects = tc::list_redirects(inside, link)?;
    let own = redirects.iter().filter(|redirect| redirect.to == 0 || taps.iter().any(|tap| tap.index == redirect.to));
    inside.run_all(own.map(|redirect| tc::delete_redirect(link, redirect)).collect())?;
    if tc::find_ingress(inside, link)? == Some(Qdisc::Ingress) && !tc::has_filters(inside, link)? {
        inside.run(tc::delete(link, &Qdisc::Ingress))?;
    }
    Ok(())
}

/// Adds to the result the tap, the guest's interface with this Ethernet address, and its addresses.
fn tell(result: &mut AddResult, call: &AddOrCheck<'_>, tap: &Link, mac: String) {
    let of_tap = tap.mac.map(|mac| mac.to_string()).unwrap_or_default();
    let own = Interface::new(&tap.name).mac(of_tap).mtu(tap.mtu_bytes).sandbox(call.netns.as_str());
    let guests = own.clone().mac(mac).sandbox(call.attachment.container_id.as_str());
    result.interfaces.extend([own, guests]);
    let guest = result.interfaces.len() - 1;
    let place = call.attached.place();
    let ips = result.ips.iter().filter(|ip| ip.interface.is_some() && ip.interface == place);
    let copies: Vec<Ip> = ips.map(|ip| ip.clone().of(guest)).collect();
    result.ips.extend(copies);
}

#[derive(Debug)]
struct DeleteTap(Link);

impl Undo for DeleteTap {
    fn text(&self) -> String {
        format!("tap {} deleted", self.0.name)
    }

    fn run(&self, sides: &LazySides<'_>) -> std::result::Result<(), Left> {
        match sides.open()?.container.run(link_removal::request(&(&self.0).into())) {
            Err(error) if !error.is_absent() => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
