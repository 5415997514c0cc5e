//! What limits the packets that a link sends: a token bucket, or one for some subnets only.

use chained::{LazySides, Left, Preview, Txn, Undo, differs, failed, unless_absent};
use cni_spec::CniError;
use netops::error::Result;
use netops::link::Link;
use netops::tc::htb::{End, Htb};
use netops::tc::{self, Qdisc, Tbf};
use netops::{Errno, Kernel};

use crate::conf::{Conf, Limit, Queue};

/// The root of a link, as [`put`] makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shaper {
    /// A bucket for all packets.
    All(Tbf),
    /// A bucket for the packets of some subnets.
    Some(Htb),
}

impl Shaper {
    pub fn find(host: &Kernel, link: &Link) -> Result<Option<Self>> {
        match tc::find_root(host, link)? {
            Some(Qdisc::Tbf(tbf)) => Ok(Some(Self::All(tbf))),
            Some(Qdisc::Htb { .. }) => Ok(Htb::find(host, link)?.map(Self::Some)),
            _ => Ok(None),
        }
    }

    pub fn root(&self) -> Qdisc {
        match self {
            Self::All(tbf) => Qdisc::Tbf(*tbf),
            Self::Some(htb) => htb.root(),
        }
    }

    pub fn add(&self, host: &Kernel, link: &Link) -> Result<()> {
        host.run(tc::add(link, &self.root()))?;
        self.complete(host, link)
    }

    fn complete(&self, host: &Kernel, link: &Link) -> Result<()> {
        match self {
            Self::All(_) => Ok(()),
            Self::Some(htb) => host.run_all(htb.below_root(link)),
        }
    }

    /// Puts the shaper in the place of another one. Only a bucket can be changed; packets that wait in another kind are lost.
    fn replace(&self, host: &Kernel, link: &Link, other: &Self) -> Result<()> {
        match (self, other) {
            (Self::All(_), Self::All(_)) => host.run(tc::replace(link, &self.root())),
            _ => host.run(tc::delete(link, &other.root())).and_then(|()| self.add(host, link)),
        }
    }
}

/// Puts a shaper on a link. One that an earlier ADD put there is changed; another process's stays, as in the reference.
pub fn put(host: &Kernel, txn: &Txn, link: &Link, shaper: &Shaper) -> std::result::Result<(), CniError> {
    let undo =
        |is_new, before| txn.push(Box::new(Unshape { link: link.clone(), made: shaper.clone(), is_new, before }));
    let refused = match host.run(tc::add(link, &shaper.root())) {
        Err(error) if error.os_errno() == Some(Errno::EEXIST) => error,
        done => {
            // The answer may be lost.
            undo(done.is_ok(), None);
            return done.and_then(|()| shaper.complete(host, link)).map_err(failed);
        }
    };
    match Shaper::find(host, link).map_err(failed)? {
        // One for some packets has another root, if it is another program's.
        Some(found) if !matches!(&found, Shaper::All(tbf) if !Limit::may_have_made(tbf)) => {
            undo(false, Some((found.clone(), tc::find_below(host, link).map_err(failed)?)));
            if found == *shaper { Ok(()) } else { shaper.replace(host, link, &found).map_err(failed) }
        }
        _ => Err(failed(refused).detail("Another process shapes this link: end that, or give the container no limit.")),
    }
}

/// The queue below a bucket; none where that has one by itself.
fn queue(keys: &Conf, limit: Limit) -> Option<Qdisc> {
    match (keys.queue, &keys.subnets) {
        (Queue::FqCodel, _) => Some(Qdisc::FqCodel),
        (Queue::Fifo, Some(_)) => Some(Qdisc::Bfifo(limit.tbf().limit_bytes)),
        (Queue::Fifo, None) => None,
    }
}

pub fn set_queue(host: &Kernel, link: &Link, keys: &Conf, limit: Limit) -> std::result::Result<(), CniError> {
    queue(keys, limit).map_or(Ok(()), |queue| host.run(tc::replace(link, &queue)).map_err(failed))
}

pub fn compare(host: &Kernel, link: &Link, keys: &Conf, limit: Limit, end: End) -> std::result::Result<(), CniError> {
    let differs = |how: String| Err(differs(format!("link {}", link.name), how));
    let numbers = |tbf: Tbf| format!("rate {} limit {} buffer {}", tbf.rate_bytes, tbf.limit_bytes, tbf.buffer_ticks);
    let wanted = keys.shaper(limit, end);
    match (Shaper::find(host, link).map_err(failed)?, &wanted) {
        (Some(found), wanted) if found == *wanted => match queue(keys, limit) {
            Some(queue) if tc::find_below(host, link).map_err(failed)?.as_ref() != Some(&queue) => {
                differs(format!("its bucket has no {} below", queue.kind()))
            }
            _ => Ok(()),
        },
        (Some(Shaper::All(found)), Shaper::All(wanted)) => {
            differs(format!("its bucket has {}, not {}", numbers(found), numbers(*wanted)))
        }
        (Some(Shaper::Some(found)), Shaper::Some(wanted)) if found.filters == wanted.filters => {
            differs(format!("its class has rate {}, not {}, or another burst", found.rate_bytes, wanted.rate_bytes))
        }
        (_, Shaper::Some(_)) => differs("its filters are not those of the subnets".to_owned()),
        (_, Shaper::All(_)) => differs("it has no token bucket".to_owned()),
    }
}

/// Shows the shaper in the syntax of `tc`.
pub fn preview(preview: &mut Preview, keys: &Conf, link: &str, limit: Limit, end: &str) {
    let Some(subnets) = &keys.subnets else {
        return preview.step(format!("tc qdisc add dev {link} root {limit}"));
    };
    let (default, class) = if subnets.are_shaped { (0, "1:1") } else { (1, "1:0") };
    preview.step(format!("tc qdisc add dev {link} root handle 1: htb default {default}"));
    preview.step(format!("tc class add dev {link} parent 1: classid 1:1 {}", limit.in_class()));
    for network in &subnets.networks {
        let family = if network.is_ipv4() { "ip" } else { "ip6" };
        preview.step(format!("tc filter add dev {link} parent 1: u32 match {family} {end} {network} flowid {class}"));
    }
}

/// Gives a link back the shaper that it had.
#[derive(Debug)]
struct Unshape {
    link: Link,
    made: Shaper,
    /// The kernel has said that there was none.
    is_new: bool,
    /// The shaper that the link had, with what was below it.
    before: Option<(Shaper, Option<Qdisc>)>,
}

impl Unshape {
    fn put_back(&self, host: &Kernel) -> Result<()> {
        let link = &self.link;
        match (&self.before, Shaper::find(host, link)?) {
            (Some((before, _)), Some(found)) if found == *before => Ok(()),
            (Some((before, queue)), found) => {
                match found {
                    Some(found) => before.replace(host, link, &found),
                    None => before.add(host, link),
                }?;
                // A bucket has a queue of its own.
                let queue = queue.iter().find(|queue| !matches!((before, queue), (Shaper::All(_), Qdisc::Bfifo(_))));
                queue.map_or(Ok(()), |queue| host.run(tc::replace(link, queue)))
            }
            (None, Some(found)) => {
                // A new root may lack what belongs below it.
                let is_part = matches!(&found, Shaper::Some(htb) if self.is_new || htb.rate_bytes == 0);
                let is_own = is_part || found == self.made;
                if is_own { host.run(tc::delete(link, &found.root())) } else { Ok(()) }
            }
            (None, None) => Ok(()),
        }
    }
}

impl Undo for Unshape {
    fn text(&self) -> String {
        let how = if self.before.is_some() { "as before" } else { "deleted" };
        format!("qdisc {} of {} {how}", self.made.root().kind(), self.link.name)
    }

    fn run(&self, sides: &LazySides<'_>) -> std::result::Result<(), Left> {
        unless_absent(self.put_back(&sides.open()?.host))
    }
}
