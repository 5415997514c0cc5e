//! What a plugin of another project answers about its config: see [`skel::cni_ask`].

use cni_spec::Command;
use cni_spec::exec::{self, CallEnv, Execution, Stderr};
use skel::cni_ask::{Answer, Question, VARIABLE};
use std::path::Path;
use std::time::Duration;

/// An answer reads the node at most. A plugin that hangs is as one that does not answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// Asks a plugin. `None`: it does not know the question, or cannot be called.
pub(crate) async fn ask(executable: &Path, question: Question, env: &CallEnv, stdin: &[u8]) -> Option<Answer> {
    let mut env = env.clone();
    env.more.push((VARIABLE.to_owned(), question.as_str().to_owned()));
    let mut call = Execution::new(executable, Command::Version, &env, stdin);
    call.stderr = Stderr::To(Box::new(|_| ()));
    call.deadline = DEADLINE;
    Answer::find_in(&exec::run(call).await.ok()?.into_stdout().ok()?)
}
