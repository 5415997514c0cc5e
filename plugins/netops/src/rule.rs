//! Policy rules: which routing table the packets of a source use.

use ipnetwork::IpNetwork;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleHeader, RuleMessage};

use crate::addr::{Family, family};
use crate::error::Result;
use crate::netlink_connection::{Kernel, Request};

/// A rule that routes packets from these addresses by one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The source addresses.
    pub source: IpNetwork,
    /// The table.
    pub table: u32,
    /// The priority: the lowest is evaluated first. `None`: when adding, one less than the lowest except 0; when
    /// deleting, any.
    pub priority: Option<u32>,
}

/// A rule as it is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Listed {
    /// The source addresses; `None`: any.
    pub source: Option<IpNetwork>,
    /// The destination addresses; `None`: any.
    pub destination: Option<IpNetwork>,
    /// The rule refuses packets: `prohibit`, `unreachable` or `blackhole`.
    pub refuses: Option<&'static str>,
    /// The table; `None`: the rule names no table.
    pub table: Option<u32>,
    /// The priority: the lowest is evaluated first.
    pub priority: u32,
    /// The rule has selectors besides the source (a mark, a link, a destination).
    pub is_narrower: bool,
    /// The rule has selectors besides source and destination.
    pub is_conditional: bool,
}

impl std::fmt::Display for Rule {
    /// In the syntax of `ip rule`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "from {} lookup {}", self.source, self.table)?;
        match self.priority {
            Some(priority) => write!(f, " pref {priority}"),
            None => Ok(()),
        }
    }
}

impl Rule {
    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header = RuleHeader {
            family: family(self.source.ip()),
            src_len: self.source.prefix(),
            action: RuleAction::ToTable,
            ..RuleHeader::default()
        };
        message.attributes.push(RuleAttribute::Source(self.source.network()));
        message.attributes.push(RuleAttribute::Table(self.table));
        message.attributes.extend(self.priority.map(RuleAttribute::Priority));
        message
    }
}

/// Adds a rule.
///
/// # Errors
/// `EEXIST`: such a rule exists. `EAFNOSUPPORT`, `EOPNOTSUPP`: the kernel has no policy routing.
pub fn add(rule: &Rule) -> Request {
    Request::new("add", format!("rule {rule}"), RouteNetlinkMessage::NewRule(rule.message()))
        .flags(NLM_F_CREATE | NLM_F_EXCL)
        .wire_name(format!("RTM_NEWRULE {rule}"))
}

/// Deletes a rule.
///
/// # Errors
/// `ENOENT`: no such rule exists.
pub fn delete(rule: &Rule) -> Request {
    Request::new("delete", format!("rule {rule}"), RouteNetlinkMessage::DelRule(rule.message()))
        .wire_name(format!("RTM_DELRULE {rule}"))
}

/// All rules of both families, those of IPv4 first.
///
/// # Errors
/// As [`list`].
pub fn list_both(net: &Kernel) -> Result<Vec<Listed>> {
    let mut rules = list(net, Family::V4)?;
    rules.extend(list(net, Family::V6)?);
    Ok(rules)
}

/// All rules of one family, in the order of evaluation.
///
/// # Errors
/// As the kernel refuses.
pub fn list(net: &Kernel, family: Family) -> Result<Vec<Listed>> {
    let mut message = RuleMessage::default();
    message.header.family = family.into();
    let request = Request::new("list", "rules", RouteNetlinkMessage::GetRule(message))
        .flags(NLM_F_DUMP)
        .wire_name("RTM_GETRULE dump");
    let rule = |answer: &RouteNetlinkMessage| match answer {
        RouteNetlinkMessage::NewRule(message) => Some(read(message)),
        _ => None,
    };
    Ok(net.call(request)?.iter().filter_map(rule).collect())
}

fn read(message: &RuleMessage) -> Listed {
    let header = &message.header;
    let mut table = u32::from(header.table);
    let mut listed = Listed { is_conditional: header.tos > 0, ..Listed::default() };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Source(ip) => listed.source = IpNetwork::new(*ip, header.src_len).ok(),
            RuleAttribute::Destination(ip) => listed.destination = IpNetwork::new(*ip, header.dst_len).ok(),
            RuleAttribute::Table(number) => table = *number,
            RuleAttribute::Priority(priority) => listed.priority = *priority,
            RuleAttribute::Iifname(_)
            | RuleAttribute::Oifname(_)
            | RuleAttribute::FwMark(_)
            | RuleAttribute::UidRange(_)
            | RuleAttribute::IpProtocol(_)
            | RuleAttribute::SourcePortRange(_)
            | RuleAttribute::DestinationPortRange(_) => listed.is_conditional = true,
            _ => (),
        }
    }
    listed.is_narrower = header.dst_len > 0 || listed.is_conditional;
    listed.table = (header.action == RuleAction::ToTable).then_some(table);
    listed.refuses = match header.action {
        RuleAction::Blackhole => Some("blackhole"),
        RuleAction::Unreachable => Some("unreachable"),
        RuleAction::Prohibit => Some("prohibit"),
        _ => None,
    };
    listed
}

/// The lowest table from `first` on that no rule of either family names and that has no route.
///
/// # Errors
/// As [`list`] and [`crate::route::list`].
pub fn free_table(net: &Kernel, first: u32) -> Result<Option<u32>> {
    let rules = list_both(net)?;
    free_table_beside(net, first, &|table| rules.iter().any(|rule| rule.table == Some(table)))
}

/// As [`free_table`], where the rules are known: whether one names a table. Asks the kernel for the routes of the tables that
/// may be free, and not for all routes.
///
/// # Errors
/// As [`crate::route::list`].
pub fn free_table_beside(net: &Kernel, first: u32, is_named: &dyn Fn(u32) -> bool) -> Result<Option<u32>> {
    // RT_TABLE_DEFAULT, MAIN and LOCAL have rules, unless an administrator deleted them.
    for table in (first.max(1)..=u32::MAX).filter(|table| !matches!(table, 253..=255) && !is_named(*table)) {
        let routes = crate::route::list_both(net, None, Some(table))?;
        if !routes.iter().any(|route| route.table == Some(table)) {
            return Ok(Some(table));
        }
    }
    Ok(None)
}
