//! Ports of the node: only one pod has each at a time, the first that claims it.

use crate::manifest::{Key, Manifest, Port};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The owner of each port. Clones share their state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ports(Arc<Table>);

#[derive(Debug, Default)]
struct Table {
    taken: Mutex<Vec<(Key, Port)>>,
    given_back: Notify,
}

/// A pod's ports; they are free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    ports: Ports,
    key: Key,
}

/// Another pod has the port.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    port: Port,
    by: Key,
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Port { host_port, host_ip, protocol, .. } = &self.port;
        write!(f, "hostPort {host_port}/{}", protocol.lower_case())?;
        if let Some(ip) = host_ip {
            write!(f, " of {ip}")?;
        }
        write!(f, " is taken by pod {}", self.by)
    }
}

impl Ports {
    /// Takes the pod's ports, all or none.
    pub(crate) fn claim(&self, manifest: &Manifest) -> Result<Claim, Taken> {
        let wanted = || manifest.ports.iter().filter(|port| port.host_port != 0);
        let mut taken = self.taken();
        for port in wanted() {
            if let Some((by, _)) = taken.iter().find(|(_, other)| clash(port, other)) {
                return Err(Taken { port: port.clone(), by: by.clone() });
            }
        }
        taken.extend(wanted().map(|port| (manifest.key.clone(), port.clone())));
        Ok(Claim { ports: self.clone(), key: manifest.key.clone() })
    }

    /// Waits until a pod releases ports; registration is at the first poll.
    pub(crate) async fn given_back(&self) {
        self.0.given_back.notified().await;
    }

    fn taken(&self) -> MutexGuard<'_, Vec<(Key, Port)>> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.ports.taken().retain(|(key, _)| *key != self.key);
        self.ports.0.given_back.notify_waiters();
    }
}

/// Returns whether a packet could be meant for both.
fn clash(one: &Port, other: &Port) -> bool {
    let same_ip = match (one.host_ip, other.host_ip) {
        (Some(one), Some(other)) => one == other,
        (None, _) | (_, None) => true,
    };
    one.host_port == other.host_port && one.protocol == other.protocol && same_ip
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, ports: &str) -> Manifest {
        let text = format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{ports: [{ports}]}}]}}}}"
        );
        crate::manifest::parse(text.as_bytes()).remove(0).unwrap()
    }

    #[test]
    fn the_first_has_it_until_it_goes() {
        let ports = Ports::default();
        let first = ports.claim(&pod("a", "{containerPort: 80, hostPort: 8080}")).unwrap();
        let second = pod("b", "{containerPort: 1, hostPort: 1}, {containerPort: 80, hostPort: 8080, hostIP: 10.0.0.1}");
        let taken = ports.claim(&second).unwrap_err();
        assert_eq!(taken.to_string(), "hostPort 8080/tcp of 10.0.0.1 is taken by pod default/a");
        // Nothing of the second was taken.
        drop(ports.claim(&pod("c", "{containerPort: 1, hostPort: 1}")).unwrap());
        drop(first);
        ports.claim(&second).unwrap();
    }

    #[test]
    fn other_protocols_and_addresses_do_not_clash() {
        let ports = Ports::default();
        let claims = [
            pod("a", "{containerPort: 80, hostPort: 8080, hostIP: 10.0.0.1}"),
            pod("b", "{containerPort: 80, hostPort: 8080, hostIP: 10.0.0.2}"),
            pod("c", "{containerPort: 80, hostPort: 8080, protocol: UDP}"),
            pod("d", "{containerPort: 80}"),
            pod("e", "{containerPort: 80}"),
        ]
        .map(|pod| ports.claim(&pod).unwrap());
        assert!(ports.claim(&pod("f", "{containerPort: 80, hostPort: 8080}")).is_err());
        drop(claims);
    }
}
