//! One call of a plugin: the variables, stdin, and the other plugins that this executable also is.

use crate::env::Environment;
use crate::plugin::Entry;
use cni_spec::{CniError, Code, Command};
use std::borrow::Cow;
use std::io::Read;
use std::rc::Rc;

/// The most that stdin may carry. A config is some kilobytes; GC of a large node is some hundred.
pub const MAX_STDIN_BYTES: u64 = 64 << 20;

/// One call of one plugin, before any rule was applied.
#[derive(Clone)]
pub struct Call {
    /// The `CNI_*` variables.
    pub env: Environment,
    /// The plugins that this executable is, for delegation in process.
    pub entries: &'static [Entry],
    stdin: Stdin,
}

#[derive(Clone)]
enum Stdin {
    /// The process's own, read when it is needed: VERSION and a bad environment do not wait for it.
    Process,
    /// A delegating plugin's own.
    Given(Rc<[u8]>),
}

impl Call {
    /// The call that started this process.
    #[must_use]
    pub fn of_process(entries: &'static [Entry]) -> Self {
        Self { env: Environment::of_process(), entries, stdin: Stdin::Process }
    }

    /// The same call once more, for a delegate: only the verb changes, and stdin is what the caller got.
    #[must_use]
    pub fn for_delegate(&self, command: Command, stdin: Rc<[u8]>) -> Self {
        let env = Environment { command: command.as_str().to_owned(), ..self.env.clone() };
        Self { env, entries: self.entries, stdin: Stdin::Given(stdin) }
    }

    /// Reads all of stdin.
    ///
    /// # Errors
    /// Code 5 if it cannot be read or is longer than [`MAX_STDIN_BYTES`].
    pub fn read_stdin(&self) -> Result<Rc<[u8]>, CniError> {
        let bytes = match &self.stdin {
            Stdin::Given(bytes) => return Ok(Rc::clone(bytes)),
            Stdin::Process => read_limited(std::io::stdin().lock())?,
        };
        Ok(Rc::from(bytes))
    }
}

fn read_limited(from: impl Read) -> Result<Cow<'static, [u8]>, CniError> {
    let mut bytes = Vec::with_capacity(4 << 10);
    let failed = |cause: String| CniError::new(Code::IO, format!("cannot read network config from stdin: {cause}"));
    from.take(MAX_STDIN_BYTES + 1).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
    if bytes.len() as u64 > MAX_STDIN_BYTES {
        return Err(failed(format!("it is longer than {MAX_STDIN_BYTES} bytes")));
    }
    Ok(Cow::Owned(bytes))
}
