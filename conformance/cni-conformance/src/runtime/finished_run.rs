//! A run of the runtime, and what may be expected of it.

use crate::finding::{Finding, Stop};
use testns::Output;

/// A run of the runtime that ended.
#[derive(Debug, Clone)]
pub struct FinishedRun {
    /// The arguments it was started with.
    pub arguments: Vec<String>,
    /// The output and exit status of the run.
    pub output: Output,
}

impl FinishedRun {
    /// Checks that the run succeeded.
    ///
    /// # Errors
    /// A finding if not.
    pub fn succeeds(self) -> Result<Self, Stop> {
        match self.output.code() {
            0 => Ok(self),
            code => Err(Finding::new(
                format!("{} succeeds", self.described()),
                format!("it ended with {code}: {}", self.output.stderr.trim()),
            )
            .into()),
        }
    }

    /// Checks that the run failed, other than by a signal.
    ///
    /// # Errors
    /// A finding if not.
    pub fn fails(self, why: &str) -> Result<Self, Stop> {
        let end = match self.output.code() {
            0 => "it succeeded".to_owned(),
            code if code > 128 => format!("it ended with {code}"),
            _ => return Ok(self),
        };
        Err(Finding::new(format!("{} fails: {why}", self.described()), end).into())
    }

    /// Returns the run's arguments without the folder of the program.
    fn described(&self) -> String {
        let program = self.arguments.first().and_then(|program| program.rsplit('/').next()).unwrap_or_default();
        std::iter::once(program).chain(self.arguments.iter().skip(1).map(String::as_str)).collect::<Vec<_>>().join(" ")
    }
}
