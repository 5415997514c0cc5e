//! The versions that executables support, by their answer to VERSION, cached until the executable changes.

use super::scan::Executable;
use cni_spec::{CniError, Code, PluginType};
use libcni::{Error, Runtime, VersionInfo};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// The deadline of VERSION: a plugin only prints a constant.
const DEADLINE: Duration = Duration::from_secs(5);
/// How long a failure is cached. Its cause may be the node: no memory, a disk that is slow while the node starts.
const FAILURE_HOLDS: Duration = Duration::from_secs(30);
/// At most one part in this many of the time is spent on asking an executable that fails.
const FAILURE_SHARE: u32 = 20;

pub(super) type Answer = Result<VersionInfo, CniError>;

/// The answers. The path is part of the key: one file may be many plugins by its name.
#[derive(Debug, Default)]
pub(super) struct Versions {
    answers: Mutex<HashMap<Executable, Remembered>>,
}

#[derive(Debug, Clone)]
struct Remembered {
    answer: Answer,
    /// The time of the next question; `None` once the executable answered.
    until: Option<Instant>,
}

impl Versions {
    /// The cached answer, or else the executable's own.
    pub(super) async fn ask(&self, runtime: &Runtime, plugin: &PluginType, executable: &Executable) -> Answer {
        if let Some(answer) = self.find(executable) {
            return answer;
        }
        let begin = Instant::now();
        let answer = ask(runtime, plugin).await;
        let holds = FAILURE_HOLDS.max(begin.elapsed() * FAILURE_SHARE);
        let until = answer.is_err().then(|| Instant::now() + holds);
        // If the file was replaced meanwhile, it is unknown which one answered.
        if executable.is_as_it_was() {
            self.lock().insert(executable.clone(), Remembered { answer: answer.clone(), until });
        }
        answer
    }

    fn find(&self, executable: &Executable) -> Option<Answer> {
        let answers = self.lock();
        let remembered = answers.get(executable)?;
        let holds = remembered.until.is_none_or(|until| Instant::now() < until);
        holds.then(|| remembered.answer.clone())
    }

    /// Drops the answers of all executables but these.
    pub(super) fn forget_others(&self, executables: &HashSet<Executable>) {
        self.lock().retain(|executable, _| executables.contains(executable));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Executable, Remembered>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask(runtime: &Runtime, plugin: &PluginType) -> Answer {
    // A dropped call ends its process in the background.
    match timeout(DEADLINE, runtime.version(plugin)).await {
        Ok(Ok(info)) => Ok(info),
        Ok(Err(Error::Plugin(plugin))) => Err(plugin.error),
        Ok(Err(other)) => Err(CniError::new(Code::INTERNAL, other.with_causes())),
        Err(_) => Err(CniError::new(Code::TIMEOUT, format!("no answer within {} s", DEADLINE.as_secs()))),
    }
}
