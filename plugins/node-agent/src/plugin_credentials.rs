//! Credentials of the address plugin `cluster`: a kubeconfig that only root reads, with the token by which the agent itself asks the API. In a
//! pod that is the token of its service account, which the kubelet renews, and which ends with the pod.

use anyhow::{Context, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kube::Config;
use pem::Pem;
use secrecy::ExposeSecret;
use serde_json::json;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The permissions of the file: the plugin refuses what others may read.
const MODE: u32 = 0o600;

/// Makes a kubeconfig that of the credentials in use, if it is not. Returns whether it was written.
///
/// # Errors
/// The credentials have no token; a file cannot be read or written. The old file is untouched then.
pub fn settle(path: &Path, config: &Config) -> anyhow::Result<bool> {
    let wanted = kubeconfig(config)?;
    let is_private = fs::symlink_metadata(path).is_ok_and(|about| about.mode() & 0o777 == MODE);
    if is_private && fs::read(path).is_ok_and(|found| found == wanted.as_bytes()) {
        return Ok(false);
    }
    netops::file::replace(path, wanted.as_bytes(), MODE).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(true)
}

fn kubeconfig(config: &Config) -> anyhow::Result<String> {
    let token = match (&config.auth_info.token, &config.auth_info.token_file) {
        (_, Some(file)) => fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?,
        (Some(token), None) => token.expose_secret().to_owned(),
        (None, None) => bail!("the agent's credentials have no token: the plugin can have the same kubeconfig"),
    };
    let mut cluster = json!({ "server": config.cluster_url.to_string().trim_end_matches('/') });
    if let Some(certificates) = &config.root_cert {
        let all: Vec<_> = certificates.iter().map(|der| Pem::new("CERTIFICATE", der.as_slice())).collect();
        cluster["certificate-authority-data"] = BASE64_STANDARD.encode(pem::encode_many(&all)).into();
    }
    let all = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "cluster",
        "contexts": [{ "name": "cluster", "context": { "cluster": "cluster", "user": "agent" } }],
        "clusters": [{ "name": "cluster", "cluster": cluster }],
        "users": [{ "name": "agent", "user": { "token": token.trim() } }],
    });
    Ok(format!("{all:#}\n"))
}
