//! The keys of a store that is etcd, and its files.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cni_spec::{CniError, Code};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

/// Where etcd is, and as whom the node speaks with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdConf {
    /// The members.
    pub endpoints: Vec<Endpoint>,
    /// The authority that has signed the members' certificates.
    pub ca_file: PathBuf,
    /// The node's certificate.
    pub cert_file: PathBuf,
    /// The certificate's key, which only its owner may read.
    pub key_file: PathBuf,
    /// The prefix of the keys of all networks.
    pub prefix: String,
}

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
        ServerName::try_from(host).map_err(|_invalid| wanted)?;
        Ok(Self { host: host.to_owned(), port })
    }

    pub(super) fn server_name(&self) -> Result<ServerName<'static>, String> {
        ServerName::try_from(self.host.clone()).map_err(|error| error.to_string())
    }
}

impl EtcdConf {
    /// TLS with the node's certificate; the members' are verified.
    ///
    /// # Errors
    /// Code 7: a file that is missing, unreadable, of another kind, or a key that others may read.
    pub(super) fn tls(&self) -> Result<Arc<ClientConfig>, CniError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates("caFile", &self.ca_file)? {
            roots.add(certificate).map_err(|error| unusable("caFile", &self.ca_file, &error.to_string()))?;
        }
        let bytes = read_key(&self.key_file)?;
        let key = PrivateKeyDer::from_pem_slice(&bytes)
            .map_err(|_no_content| unusable("keyFile", &self.key_file, "it has no private key in PEM"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&rustls::version::TLS13]);
        let mut config = builder
            .map_err(|error| CniError::new(Code::IO, format!("cannot use TLS 1.3: {error}")))?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates("certFile", &self.cert_file)?, key)
            .map_err(|error| unusable("certFile", &self.cert_file, &format!("with the key of keyFile: {error}")))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Arc::new(config))
    }
}

fn unusable(key: &str, path: &Path, why: &str) -> CniError {
    let key = format!("ipam.store.{key}");
    CniError::invalid_key(&key, path.display(), why)
}

fn read(key: &str, path: &Path) -> Result<Vec<u8>, CniError> {
    fs::read(path).map_err(|error| unusable(key, path, &format!("the file cannot be read: {error}")))
}

fn certificates(key: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, CniError> {
    let bytes = read(key, path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(unusable(key, path, "it has no certificate in PEM")),
    }
}

/// The key file, which only its owner may read: looked at and read by one opening.
fn read_key(path: &Path) -> Result<Vec<u8>, CniError> {
    let failed = |error: io::Error| unusable("keyFile", path, &format!("the file cannot be read: {error}"));
    let mut file = fs::File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & 0o077 != 0 {
        return Err(unusable("keyFile", path, &format!("others may read it: chmod 600 {}", path.display())));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_has_a_host_a_port_and_tls() {
        for good in ["https://etcd1:2379", "https://10.0.0.1:2379/", "https://[fd00::1]:2379"] {
            assert_eq!(Endpoint::parse(good).unwrap().to_string(), good.trim_end_matches('/'));
        }
        for bad in ["http://etcd1:2379", "etcd1:2379", "https://etcd1", "https://:1", "https://a:0", "https://a:1/v3"] {
            assert!(Endpoint::parse(bad).is_err(), "{bad}");
        }
    }
}
