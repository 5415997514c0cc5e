//! The about text, which a plugin prints when it is called without `CNI_COMMAND`: `CNI bridge plugin v1.9.1`.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

/// How long a plugin may take to print it.
const DEADLINE: Duration = Duration::from_secs(2);
/// The bytes of stderr that are read.
const MAX_BYTES: u64 = 4 << 10;

/// The release in a plugin's about text, in the form of the plugin; none if there is no such text. Only for files that
/// have answered VERSION, as any other program may do anything when it is started without arguments.
pub(crate) async fn release(executable: &Path) -> Option<String> {
    let mut child = Command::new(executable)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .ok()?;
    let mut text = Vec::new();
    timeout(DEADLINE, child.stderr.take()?.take(MAX_BYTES).read_to_end(&mut text)).await.ok()?.ok()?;
    parse(&String::from_utf8_lossy(&text)).map(str::to_owned)
}

/// The last word of the line `CNI NAME plugin RELEASE`.
fn parse(text: &str) -> Option<&str> {
    text.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["CNI", _, "plugin", release] => Some(release),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_the_last_word_of_the_about_line() {
        let text = "CNI bridge plugin v1.9.1+rust.0.1.0\nCNI protocol versions supported: 0.1.0, 1.1.0\n";
        assert_eq!(parse(text), Some("v1.9.1+rust.0.1.0"));
        assert_eq!(parse("CNI plugin\nCNI static plugin version unknown\n"), None);
    }
}
