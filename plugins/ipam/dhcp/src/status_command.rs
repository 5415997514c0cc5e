//! `dhcp status`: the leases of a running daemon, a line each.

use std::path::PathBuf;
use std::time::Duration;

use cni_spec::CniError;
use cni_suite::text;
use ipnetwork::Ipv6Network;
use skel::Reply;

use crate::conf::SOCKET;
use crate::daemon::RecordOfIpv6;
use crate::ipv6::Given;
use crate::lease::INFINITE;
use crate::lease_files::LeaseRecord;
use crate::rpc::{self, Request};

const WITHIN: Duration = Duration::from_secs(20);

const HEAD: [&str; 10] =
    ["NETWORK", "CONTAINER", "INTERFACE", "ADDRESS", "SERVER", "STATE", "T1", "T2", "EXPIRES", "LAST ERROR"];

/// Prints the table; `words` may be `-socketpath PATH`. Returns the exit status.
pub(crate) fn main(mut words: impl Iterator<Item = String>) -> u8 {
    skel::log_at(tracing::Level::WARN);
    let socket = match (words.next().as_deref(), words.next()) {
        (None, _) => PathBuf::from(SOCKET),
        (Some("-socketpath" | "--socketpath"), Some(path)) => path.into(),
        _ => {
            tracing::error!("usage: dhcp status [-socketpath PATH]");
            return 2;
        }
    };
    match ask(&socket) {
        Ok(records) => Reply::success(table(&records, crate::daemon::since_boot())).send(),
        Err(error) => {
            tracing::error!("{}", error.msg);
            1
        }
    }
}

fn ask(socket: &std::path::Path) -> Result<Vec<LeaseRecord>, CniError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CniError::new(cni_spec::Code::IO, error.to_string()))?;
    let answer = runtime.block_on(rpc::call(socket, Request::List, WITHIN))?;
    serde_json::from_value(answer).map_err(|error| CniError::new(cni_spec::Code::DECODING, error.to_string()))
}

/// Times are from now; those that have passed are `now`.
fn table(records: &[LeaseRecord], now: Duration) -> String {
    let both =
        |record: &LeaseRecord| std::iter::once(row(record, now)).chain(ipv6_row(record, now)).collect::<Vec<_>>();
    let rows = std::iter::once(HEAD.map(str::to_owned)).chain(records.iter().flat_map(both));
    let rows: Vec<[String; 10]> = rows.map(|row| row.map(|cell| text::visible(&cell))).collect();
    text::table(&rows)
}

fn row(record: &LeaseRecord, now: Duration) -> [String; 10] {
    let LeaseRecord { subject, lease, since_seconds, is_lost, last_error, .. } = record;
    let at = |seconds: u32| at(seconds, *since_seconds, *is_lost, now);
    [
        subject.names.network.clone(),
        subject.names.container_id.clone(),
        subject.names.ifname.clone(),
        if *is_lost { "-".to_owned() } else { lease.address.to_string() },
        lease.server.to_string(),
        if *is_lost { "lost".to_owned() } else { "bound".to_owned() },
        at(lease.renew_seconds),
        at(lease.rebind_seconds),
        at(lease.seconds),
        last_error.clone(),
    ]
}

/// The line of an IPv6 address, below that of its attachment's lease.
fn ipv6_row(record: &LeaseRecord, now: Duration) -> Option<[String; 10]> {
    let RecordOfIpv6 { given, since_seconds, is_lost } = record.ipv6.as_ref()?;
    let [network, container, interface, ..] = row(record, now);
    let [address, server, state, renew, rebind, end] = match given {
        Given::Slaac(addresses) => {
            let addresses: Vec<String> = addresses.iter().map(Ipv6Network::to_string).collect();
            [addresses.join(","), "-".into(), "slaac".into(), "-".into(), "-".into(), "-".into()]
        }
        Given::Leased(lease) => {
            let at = |seconds: u32| at(seconds, *since_seconds, *is_lost, now);
            let server = lease.server.iter().map(|byte| format!("{byte:02x}")).collect();
            let state = if *is_lost { "lost" } else { "bound" };
            let address = if *is_lost { "-".to_owned() } else { lease.network().to_string() };
            let times = [lease.renew_seconds, lease.rebind_seconds, lease.seconds].map(at);
            let [renew, rebind, end] = times;
            [address, server, state.into(), renew, rebind, end]
        }
    };
    Some([network, container, interface, address, server, state, renew, rebind, end, "".into()])
}

fn at(seconds: u32, since_seconds: u64, is_lost: bool, now: Duration) -> String {
    match seconds {
        _ if is_lost => "-".to_owned(),
        INFINITE => "never".to_owned(),
        seconds => match (since_seconds + u64::from(seconds)).saturating_sub(now.as_secs()) {
            0 => "now".to_owned(),
            left => format!("{left}s"),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A lease of two minutes that was asked for 100 s after the boot.
    fn record(container: &str, is_lost: bool, last_error: &str) -> LeaseRecord {
        let lease = json!({
            "address": "10.8.0.50/24", "server": "10.8.0.1", "routers": [], "classlessRoutes": null, "staticRoutes": [],
            "nameServers": [], "domain": "", "search": [], "mtuBytes": null,
            "seconds": 120, "renewSeconds": 60, "rebindSeconds": 105,
        });
        let subject = json!({
            "names": {"network": "net", "containerId": container, "ifname": "eth0"},
            "sandbox": {"path": "/run/netns/c1", "identity": [4, 5]}, "index": 2, "mac": [2, 0, 0, 0, 0, 1],
            "clientId": [], "provide": [], "request": [], "priority": 0,
        });
        let record = json!({
            "subject": subject, "lease": lease, "sinceSeconds": 100, "boot": "", "isLost": is_lost,
            "lastError": last_error, "isReleased": false,
        });
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn line_has_address_server_times_from_now_and_the_last_error() {
        let records = [record("c1", false, ""), record("c22", true, "no server renewed the lease until its end")];
        let text = table(&records, Duration::from_secs(165));
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0].join(" "), HEAD.join(" "));
        assert_eq!(lines[1], ["net", "c1", "eth0", "10.8.0.50/24", "10.8.0.1", "bound", "now", "40s", "55s"]);
        assert_eq!(lines[2][..9], ["net", "c22", "eth0", "-", "10.8.0.1", "lost", "-", "-", "-"]);
        assert!(text.lines().nth(2).unwrap().ends_with("  no server renewed the lease until its end"));
        let hostile = table(&[record("c\u{1b}[2J\u{202e}", false, "it's")], Duration::ZERO);
        assert!(hostile.contains(r"c\u{1b}[2J\u{202e}"), "{hostile}");
        let columns: Vec<_> = text.lines().map(|line| line.find("10.8.0.1 ").or(line.find("SERVER"))).collect();
        assert!(columns.iter().all(|column| *column == columns[0]), "{text}");
    }
}
