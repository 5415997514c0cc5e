//! Ports of the node: only one pod has each at a time, the first that claims it.

use crate::manifest::Key;
use pods::PortMapping;
use tokio::sync::watch;

/// The owner of each port.
#[derive(Debug, Default)]
pub(crate) struct Ports(watch::Sender<Vec<(Key, PortMapping)>>);

/// A pod's ports; they are free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    taken: watch::Sender<Vec<(Key, PortMapping)>>,
    key: Key,
    pub(crate) ports: Vec<PortMapping>,
}

impl Ports {
    /// Takes the pod's ports, all or none. An error names the pod that has one of them.
    pub(crate) fn claim(&self, key: &Key, ports: Vec<PortMapping>) -> Result<Claim, String> {
        for PortMapping { host_port, host_ip, protocol, .. } in &ports {
            let is_taken = |(_, other): &&(Key, PortMapping)| {
                let is_same_ip = host_ip.is_none() || other.host_ip.is_none() || *host_ip == other.host_ip;
                *host_port == other.host_port && *protocol == other.protocol && is_same_ip
            };
            if let Some((by, _)) = self.0.borrow().iter().find(is_taken) {
                let ip = host_ip.map(|ip| format!(" of {ip}")).unwrap_or_default();
                return Err(format!("hostPort {host_port}/{protocol}{ip} is taken by pod {by}"));
            }
        }
        self.0.send_modify(|taken| taken.extend(ports.iter().map(|port| (key.clone(), port.clone()))));
        Ok(Claim { taken: self.0.clone(), key: key.clone(), ports })
    }

    /// Reports every change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<Vec<(Key, PortMapping)>> {
        self.0.subscribe()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.taken.send_modify(|taken| taken.retain(|(key, _)| *key != self.key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::tests::pod;

    fn claim(ports: &Ports, name: &str, list: &str) -> Result<Claim, String> {
        let pod = pod(name, &format!("{{containers: [{{ports: [{list}]}}]}}"));
        ports.claim(&pod.key(), pod.ports())
    }

    #[test]
    fn the_first_has_a_port_until_it_goes_and_the_second_takes_all_or_none() {
        let ports = Ports::default();
        let first = claim(&ports, "a", "{containerPort: 80, hostPort: 8080}").unwrap();
        let second = "{containerPort: 1, hostPort: 1}, {containerPort: 80, hostPort: 8080, hostIP: 10.0.0.1}";
        let taken = claim(&ports, "b", second).unwrap_err();
        assert_eq!(taken, "hostPort 8080/tcp of 10.0.0.1 is taken by pod default/a");
        drop(claim(&ports, "c", "{containerPort: 1, hostPort: 1}").unwrap());
        let other_address = claim(&ports, "c", "{containerPort: 80, hostPort: 8081, hostIP: 10.0.0.2}").unwrap();
        assert!(claim(&ports, "d", "{containerPort: 80, hostPort: 8081}").is_err());
        drop(claim(&ports, "d", "{containerPort: 80, hostPort: 8081, hostIP: 10.0.0.3}").unwrap());
        drop(claim(&ports, "d", "{containerPort: 80, hostPort: 8080, protocol: UDP}").unwrap());
        drop((first, other_address));
        claim(&ports, "b", second).unwrap();
    }
}
