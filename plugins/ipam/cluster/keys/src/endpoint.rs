//! A member of etcd, as the key `endpoints` names it.

use std::net::IpAddr;

/// A member's address for clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// A name, or an address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "https://[{}]:{}", self.host, self.port),
            false => write!(f, "https://{}:{}", self.host, self.port),
        }
    }
}

impl Endpoint {
    /// Reads `https://HOST:PORT`.
    ///
    /// # Errors
    /// The form that is wanted.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let wanted = "an endpoint is https://HOST:PORT, without a path; TLS cannot be turned off";
        let rest = text.strip_prefix("https://").ok_or(wanted)?;
        let (host, port) = rest.strip_suffix('/').unwrap_or(rest).rsplit_once(':').ok_or(wanted)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port != 0).ok_or(wanted)?;
        let is_host = host.parse::<IpAddr>().is_ok() || is_name(host);
        if is_host { Ok(Self { host: host.to_owned(), port }) } else { Err(wanted) }
    }
}

/// Whether a text can be a host's name (RFC 1123, section 2.1, and the underscore that some have). A last label of digits only would be a wrong address.
fn is_name(host: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_number = |label: &str| label.chars().all(|c| c.is_ascii_digit());
    host.len() <= 253 && host.split('.').all(is_label) && !host.rsplit('.').next().is_some_and(is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_a_host_a_port_and_tls() {
        for good in ["https://etcd1:2379", "https://10.0.0.1:2379/", "https://[fd00::1]:2379", "https://a-1.b_c.d:1"] {
            assert_eq!(Endpoint::parse(good).unwrap().to_string(), good.trim_end_matches('/'));
        }
        for bad in [
            "http://etcd1:2379",
            "etcd1:2379",
            "https://etcd1",
            "https://:1",
            "https://a:0",
            "https://a:1/v3",
            "https://10.0.0.300:1",
            "https://a..b:1",
            "https://-a:1",
            "https://a b:1",
        ] {
            assert!(Endpoint::parse(bad).is_err(), "{bad}");
        }
    }
}
