//! `static-pods exec`: a program in a pod's namespaces and with its resolv.conf, to look around with.

use crate::cli::Exec;
use crate::state::{self, Record};
use anyhow::{Context, Result, bail};
use netops::boot::Boot;
use netops::{Bind, Namespaces};
use std::path::Path;
use std::process::{Command, ExitCode};

/// The path at which programs see the pod's resolv.conf.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Runs the program and takes its exit status.
pub(crate) fn run(exec: &Exec) -> Result<ExitCode> {
    let records = state::read_all(&exec.state_dir)?;
    let mut found = records.iter().filter(|record| {
        let key = &record.manifest.key;
        exec.pod == key.name || exec.pod == key.to_string()
    });
    let Some(record) = found.next() else {
        let names: Vec<String> = records.iter().map(|record| record.manifest.key.to_string()).collect();
        bail!(
            "there is no pod {}; there is {}",
            exec.pod,
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        );
    };
    if let Some(other) = found.next() {
        bail!("{} may be {} or {}: add its namespace", exec.pod, record.manifest.key, other.manifest.key);
    }
    let namespaces = namespaces(record).with_context(|| format!("pod {} has no process", record.manifest.key))?;
    let Some((program, arguments)) = exec.program.split_first() else { bail!("no program is given") };
    let mut command = Command::new(program);
    command.args(arguments);
    let resolv_conf = state::find_resolv_conf(&exec.state_dir, record);
    // A node without the file has no place where it could be seen.
    let resolv_conf = resolv_conf.filter(|_| Path::new(RESOLV_CONF).exists());
    let bind = resolv_conf.as_deref().map(|source| Bind { source, target: Path::new(RESOLV_CONF) });
    let status = namespaces.run(bind.as_slice(), || command.status())?;
    let status = status.with_context(|| format!("cannot run {program}"))?;
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// The pod's namespaces, by its pause process.
fn namespaces(record: &Record) -> Option<Namespaces> {
    let pause = record.pause.filter(|_| Boot::read().is_ok_and(|boot| boot.id == record.boot))?;
    // First the namespaces, then the look: if the pause process still runs, they are its own.
    let namespaces = Namespaces::of_process(pause.pid).ok()?;
    pause.runs().then_some(namespaces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessId;

    #[test]
    fn a_recycled_number_is_no_pause_process() {
        let manifest = crate::manifest::parse(b"{apiVersion: v1, kind: Pod, metadata: {name: web}}").remove(0).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let own = runtime.block_on(async { crate::process::Process::open_child(std::process::id()).unwrap().id() });
        let boot = Boot::read().unwrap().id;
        let record = |pause: ProcessId, boot: &str| Record {
            sandbox: "s".into(),
            manifest: manifest.clone(),
            file: "web.yaml".into(),
            created: 0,
            boot: boot.into(),
            pause: Some(pause),
            up: true,
        };
        assert!(namespaces(&record(own, &boot)).is_some());
        assert!(namespaces(&record(ProcessId { start_ticks: own.start_ticks + 1, ..own }, &boot)).is_none());
        assert!(namespaces(&record(own, "another boot")).is_none());
    }
}
