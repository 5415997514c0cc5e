//! The remedy of a fault, as data: commands, and sentences about them.

use std::fmt;

use crate::shell_words::word;

/// Commands shown at most.
pub(crate) const COMMANDS_MAX: usize = 5;

/// A step of a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A sentence; one that ends with a colon is about the commands behind it.
    Advice(String),
    Shell(String),
    /// The words of a command of this program, with the options of the caller's folders.
    Tool {
        options: Vec<String>,
        words: Vec<String>,
    },
}

pub(crate) fn advice(text: impl Into<String>) -> Step {
    Step::Advice(text.into())
}

pub(crate) fn tool<const N: usize>(words: [&str; N]) -> Step {
    Step::Tool { options: Vec::new(), words: words.map(str::to_owned).into() }
}

impl From<String> for Step {
    fn from(line: String) -> Self {
        Self::Shell(line)
    }
}

impl Step {
    fn is_advice(&self) -> bool {
        matches!(self, Self::Advice(_))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Advice(text) | Self::Shell(text) => f.write_str(text),
            Self::Tool { options, words } => {
                f.write_str("cnitool")?;
                options.iter().try_for_each(|option| write!(f, " {option}"))?;
                words.iter().try_for_each(|one| write!(f, " {}", word(one)))
            }
        }
    }
}

/// Steps, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remedy(pub Vec<Step>);

impl Remedy {
    /// The commands alone, as lines for a shell.
    pub fn commands(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter(|step| !step.is_advice()).map(Step::to_string)
    }

    /// Has commands of this program mean the same node: by these options, as far as they do not name them.
    pub(crate) fn with_options(&mut self, of_caller: &[String]) {
        let name = |option: &str| option.split(' ').next().map(str::to_owned);
        for step in &mut self.0 {
            if let Step::Tool { options, words } = step {
                let is_new = |option: &&String| name(option).is_some_and(|name| !words.contains(&name));
                *options = of_caller.iter().filter(is_new).cloned().collect();
            }
        }
    }

    /// Of many commands the first ones.
    pub(crate) fn shortened(mut self) -> Self {
        let more = self.0.len().saturating_sub(COMMANDS_MAX);
        self.0.truncate(COMMANDS_MAX);
        self.0.extend((more > 0).then(|| advice(format!("likewise for {more} more"))));
        self
    }

    /// Adds a step unless it is there; of sentences for one cause, which name different addresses, one is enough.
    pub(crate) fn join(&mut self, step: &Step) {
        if !self.0.iter().any(|said| said == step || said.is_advice() && step.is_advice()) {
            self.0.push(step.clone());
        }
    }

    /// Whether a repair is all of it.
    pub(crate) fn is_repair(&self) -> bool {
        matches!(&*self.0, [Step::Tool { words, .. }] if words.first().is_some_and(|verb| verb == "repair"))
    }
}

impl From<Step> for Remedy {
    fn from(step: Step) -> Self {
        Self(vec![step])
    }
}

impl From<String> for Remedy {
    fn from(line: String) -> Self {
        Step::from(line).into()
    }
}

impl FromIterator<Step> for Remedy {
    fn from_iter<I: IntoIterator<Item = Step>>(steps: I) -> Self {
        Self(steps.into_iter().collect())
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before: Option<&Step> = None;
        for step in &self.0 {
            f.write_str(before.map_or("", |before| if before.is_advice() { " " } else { "; " }))?;
            write!(f, "{step}")?;
            before = Some(step);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_this_program_get_the_options_that_they_do_not_have() {
        let options = ["--conf-dir /x".to_owned(), "--cache-dir '/a b'".to_owned()];
        let with = |steps: &[Step]| {
            let mut remedy = Remedy(steps.to_vec());
            remedy.with_options(&options);
            remedy.to_string()
        };
        assert_eq!(
            with(&[advice("Then:"), tool(["gc", "n;t"]), tool(["doctor", "--conf-dir", "/srv/k3s"])]),
            "Then: cnitool --conf-dir /x --cache-dir '/a b' gc 'n;t'; cnitool --cache-dir '/a b' doctor --conf-dir /srv/k3s"
        );
        let untouched = "ip link delete cni0".to_owned();
        assert_eq!(with(&[untouched.clone().into()]), untouched);
    }

    #[test]
    fn of_many_commands_the_first_are_shown() {
        let of = |count: usize| (1..=count).map(|number| number.to_string().into()).collect::<Remedy>().shortened();
        assert_eq!(of(7).to_string(), "1; 2; 3; 4; 5; likewise for 2 more");
        assert_eq!(of(5).to_string(), "1; 2; 3; 4; 5");
        assert_eq!(of(7).commands().count(), 5);
    }
}
