//! Which versions executables speak, by their own answer, remembered until the executable changes.

use super::scan::Executable;
use cni_spec::{CniError, Code, PluginType};
use libcni::{Error, Runtime, VersionInfo};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long an executable may take to say which versions it speaks: it only prints a constant.
const DEADLINE: Duration = Duration::from_secs(5);
/// For how long a failure is believed. It may be the node's: no memory, a disk that is slow while the node starts.
const FAILURE_HOLDS: Duration = Duration::from_secs(30);
/// Of the time, no more than one part in this many goes into asking an executable that fails.
const FAILURE_SHARE: u32 = 20;

/// What an executable answered.
pub(super) type Answer = Result<VersionInfo, CniError>;

/// The answers. An executable is its path too: one file may be many plugins by its name.
#[derive(Debug, Default)]
pub(super) struct Versions {
    answers: Mutex<HashMap<Executable, Remembered>>,
}

#[derive(Debug, Clone)]
struct Remembered {
    answer: Answer,
    /// When to ask anew; never, if it answered.
    until: Option<Instant>,
}

impl Versions {
    /// The remembered answer, or else the executable's own.
    pub(super) async fn ask(&self, runtime: &Runtime, plugin: &PluginType, executable: &Executable) -> Answer {
        if let Some(answer) = self.find(executable) {
            return answer;
        }
        let begin = Instant::now();
        let answer = ask(runtime, plugin).await;
        let holds = FAILURE_HOLDS.max(begin.elapsed() * FAILURE_SHARE);
        let until = answer.is_err().then(|| Instant::now() + holds);
        // If it was replaced meanwhile, nobody knows which one answered.
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

    /// Forgets all others, and tells when the first failure of these is to be looked at again.
    pub(super) fn keep(&self, executables: &HashSet<Executable>) -> Option<Instant> {
        let mut answers = self.lock();
        answers.retain(|executable, _| executables.contains(executable));
        answers.values().filter_map(|remembered| remembered.until).min()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Executable, Remembered>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask(runtime: &Runtime, plugin: &PluginType) -> Answer {
    // Dropped, a call ends its process in its own time.
    match timeout(DEADLINE, runtime.version(plugin)).await {
        Ok(Ok(info)) => Ok(info),
        Ok(Err(Error::Plugin(plugin))) => Err(plugin.error),
        Ok(Err(other)) => Err(CniError::new(Code::INTERNAL, other.with_causes())),
        Err(_) => Err(CniError::new(Code::TIMEOUT, format!("no answer within {} s", DEADLINE.as_secs()))),
    }
}
