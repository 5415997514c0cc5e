//! `static-pods exec`: a program in a pod's namespaces, to look around with.

use crate::cli::Exec;
use crate::state;
use anyhow::{Context, Result, bail};
use netops::Netns;
use std::process::{Command, ExitCode};

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
    let pause = record.pause.filter(|pause| pause.runs());
    let pause = pause.with_context(|| format!("pod {} has no process", record.manifest.key))?;
    let Some((program, arguments)) = exec.program.split_first() else { bail!("no program is given") };
    let mut command = Command::new(program);
    command.args(arguments);
    let status = Netns::open(pause.netns())?.run(|| command.status())?;
    let status = status.with_context(|| format!("cannot run {program}"))?;
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
